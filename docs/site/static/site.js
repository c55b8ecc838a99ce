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
