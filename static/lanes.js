// The timeline in lanes: a card for the bar with pointer or focus, arrow keys from bar to bar, and
// zooming that keeps the middle. Without this script the bars are links with titles.
"use strict";
(() => {
  const card = document.createElement("div");
  card.className = "lane-card";
  card.hidden = true;
  const barOf = (target) => target.closest?.("svg.lanes a");

  function showCard(bar) {
    const words = bar.querySelector("title");
    if (!words) return;
    card.textContent = words.textContent;
    if (!card.isConnected) document.body.append(card);
    card.hidden = false;
    const box = bar.getBoundingClientRect(), room = document.documentElement;
    const left = Math.max(8, Math.min(Math.max(box.left, 8), room.clientWidth - card.offsetWidth - 8));
    const below = box.bottom + 6;
    const top = below + card.offsetHeight < room.clientHeight ? below : box.top - card.offsetHeight - 6;
    card.style.left = `${left}px`;
    card.style.top = `${Math.max(8, top)}px`;
  }
  const hideCard = () => { card.hidden = true; };

  document.addEventListener("pointerover", (event) => {
    const bar = barOf(event.target);
    if (bar) showCard(bar); else hideCard();
  });
  document.addEventListener("focusin", (event) => {
    const bar = barOf(event.target);
    if (!bar) return hideCard();
    bar.scrollIntoView({ block: "nearest", inline: "nearest" });
    showCard(bar);
  });
  document.addEventListener("focusout", hideCard);
  addEventListener("scroll", hideCard, { passive: true, capture: true });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideCard();
    const bar = barOf(event.target), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!bar || !step || event.ctrlKey || event.metaKey || event.altKey) return;
    // In the order of time, over all lanes.
    const bars = [...bar.ownerSVGElement.querySelectorAll("a")]
      .map((each) => [each.getBoundingClientRect().left, each]).sort((a, b) => a[0] - b[0]);
    const next = bars[bars.findIndex((each) => each[1] === bar) + step];
    if (next) { event.preventDefault(); next[1].focus(); }
  });

  // A zoom link opens the same page; its drawing comes back where it was.
  const KEY = "lanes-middle";
  document.addEventListener("click", (event) => {
    const scroller = document.querySelector("[data-lanes]");
    if (!event.target.closest?.("[data-zoom]") || !scroller) return;
    const middle = (scroller.scrollLeft + scroller.scrollWidth - scroller.clientWidth / 2) / scroller.scrollWidth;
    try { sessionStorage.setItem(KEY, String(middle)); } catch { /* the page opens at its end */ }
  });
  // The drawing opens at its end; a short session on a narrow page may have no bar there.
  const showLastBar = (scroller) => {
    const box = scroller.getBoundingClientRect();
    const bars = [...scroller.querySelectorAll("a > :not(title, text)")]
      .map((part) => part.getBoundingClientRect());
    if (!bars.length || bars.some((bar) => bar.right > box.left && bar.left < box.right)) return;
    scroller.scrollLeft += Math.max(...bars.map((bar) => bar.right)) - (box.left + box.right) / 2;
  };
  const scroller = document.querySelector("[data-lanes]");
  if (scroller) showLastBar(scroller);
  try {
    const middle = Number(sessionStorage.getItem(KEY));
    sessionStorage.removeItem(KEY);
    if (scroller && middle) {
      scroller.scrollLeft = middle * scroller.scrollWidth + scroller.clientWidth / 2 - scroller.scrollWidth;
    }
  } catch { /* no storage */ }

  // An update does not take away what has the focus.
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const old = document.getElementById("lanes");
    if (old?.contains(document.activeElement) && event.detail.target === old) event.preventDefault();
  });
})();
