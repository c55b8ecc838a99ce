// Starts the page: what a visitor does is heard here, and done by the modules that are imported.
// Models run in worker.js.

import { copyLink } from "./address.js";
import { element, ui } from "./elements.js";
import { openCamera, showAddress, showFile, showNext, takePhotograph } from "./pictures.js";
import { chooseWord, sayAgain } from "./sentence.js";
import { listModels, showModel } from "./settings.js";
import { contents, loadContents, state } from "./state.js";
import { attempt } from "./status.js";
import {
  focused, keyDown, pointerDown, pointerLeave, pointerMove, pointerUp, setPainting,
} from "./steering.js";
import { saveTiles } from "./tiles.js";

async function begin() {
  // In a frame the page around it introduces it.
  document.documentElement.classList.toggle("embedded", self !== top);
  await loadContents();
  listModels();
  showModel();

  ui.draw.hidden = !Object.keys(contents.scenes).length;
  ui.sample.hidden = !Object.keys(contents.photographs).length;
  hearPictures();
  hearWords();
  hearLight();

  await showAddress();
}

/** Another picture: of the page, from a file, from the camera, dropped, or pasted. */
function hearPictures() {
  ui.draw.onclick = () => attempt(() => showNext("scenes"));
  ui.sample.onclick = () => attempt(() => showNext("photographs"));
  ui.file.onchange = () => {
    showFile(ui.file.files);
    ui.file.value = ""; // the same file may be chosen again
  };

  ui.camera.hidden = !navigator.mediaDevices?.getUserMedia;
  ui.camera.onclick = () => attempt(openCamera);
  ui.take.onclick = () => attempt(takePhotograph);
  element("cancel", HTMLButtonElement).onclick = () => ui.booth.close();

  const stage = /** @type {HTMLElement} */ (ui.picture.parentElement);
  document.ondragover = (event) => {
    event.preventDefault();
    stage.classList.add("over");
  };
  document.ondragleave = () => stage.classList.remove("over");
  document.ondrop = (event) => {
    event.preventDefault();
    stage.classList.remove("over");
    showFile(event.dataTransfer?.files);
  };
  document.onpaste = (event) => showFile(event.clipboardData?.files);
}

/** Another word of the caption, by pointer or arrows; and the caption as a link or a file. */
function hearWords() {
  ui.words.onclick = ({ target }) => {
    const index = [...ui.words.children].findIndex((button) => button === target);
    if (index >= 0) chooseWord(index);
  };
  ui.words.onkeydown = ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    chooseWord(state.current + (key === "ArrowRight" ? 1 : -1));
    /** @type {HTMLElement} */ (ui.words.children[state.current]).focus();
  };
  ui.save.onclick = () => attempt(saveTiles);
  ui.link.hidden = !navigator.clipboard; // only secure pages have it
  ui.link.onclick = () => attempt(copyLink);
  window.onpopstate = () => attempt(showAddress);
}

/** The light on the picture, the brush, and another model, with which the caption begins again. */
function hearLight() {
  ui.picture.onpointerdown = pointerDown;
  ui.picture.onpointermove = pointerMove;
  ui.picture.onpointerleave = pointerLeave;
  ui.picture.onpointercancel = pointerLeave;
  ui.picture.onpointerup = pointerUp;
  ui.clear.onclick = sayAgain;
  ui.model.onchange = sayAgain;

  ui.paint.onclick = () => setPainting(!state.painting);
  ui.picture.onkeydown = keyDown;
  ui.picture.onfocus = focused;
  ui.picture.onblur = pointerLeave;
}

attempt(begin);
