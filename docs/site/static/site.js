// On a telephone a figure of many panels is small: a tap opens it by itself, to be enlarged.
for (const image of document.querySelectorAll(".cell_output img")) {
  const link = document.createElement("a");
  link.href = image.src;
  image.replaceWith(link);
  link.append(image);
}

// The live page on the front page is as high as what is in it, so that it does not scroll inside the page.
for (const frame of document.querySelectorAll("iframe.live")) {
  const follow = () => {
    const body = frame.contentDocument.body;
    new ResizeObserver(() => { frame.style.height = `${body.getBoundingClientRect().bottom + frame.contentWindow.scrollY + 4}px`; }).observe(body);
  };
  frame.addEventListener("load", follow);
  if (frame.contentDocument?.readyState === "complete" && frame.contentWindow.location.href !== "about:blank") follow();
}

// What the theme leaves nameless to screen readers.
for (const summary of document.querySelectorAll(".toctree-l1 summary, .toctree-l2 summary")) {
  summary.ariaLabel = `Pages of ${summary.closest("li").querySelector("a").textContent}`;
}
for (const button of document.querySelectorAll(".search-button-field")) {
  button.removeAttribute("aria-label"); // its text is its name
}
for (const header of document.querySelectorAll("th")) {
  const isEmpty = !header.textContent.trim(); // as above a column of numbers
  if (isEmpty) header.role = "presentation";
}
const sidebar = document.querySelector(".bd-sidebar-primary");
sidebar?.setAttribute("role", "region");
sidebar?.setAttribute("aria-label", "Pages of this site");

// A table that scrolls by itself, as on a telephone, scrolls by keyboard, too.
for (const table of document.querySelectorAll(".bd-article table")) {
  if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
}
