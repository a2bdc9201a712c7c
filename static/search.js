// The search box: what may stand at the cursor is offered under it. The page works without this file, by the list of
// fields under the box. A list never decides anything: Enter searches, unless something in the list was walked to.
(() => {
  const box = document.querySelector("input[data-completes]");
  if (!box) return;
  const room = box.parentElement;
  const holder = Object.assign(document.createElement("div"), { className: "completions", hidden: true });
  room.append(holder);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "completion-list" })) box.setAttribute(name, value);

  let asked = 0, timer, chosen = -1, refused = "";
  const options = () => [...holder.querySelectorAll("[role=option]")];
  const close = () => {
    holder.hidden = true;
    chosen = -1;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const walk = (to) => {
    const all = options();
    if (!all.length) return;
    chosen = (to + all.length) % all.length;
    all.forEach((one, number) => one.setAttribute("aria-selected", String(number === chosen)));
    box.setAttribute("aria-activedescendant", all[chosen].id);
    all[chosen].scrollIntoView({ block: "nearest" });
  };
  const take = (one) => {
    const { from, to } = holder.firstElementChild.dataset;
    const text = box.value, put = one.dataset.text;
    box.value = text.slice(0, from) + put + text.slice(to);
    const at = Number(from) + put.length;
    close();
    box.focus();
    box.setSelectionRange(at, at);
    ask();
  };
  const ask = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const mine = ++asked, text = box.value, at = box.selectionStart;
      if (document.activeElement !== box || text === refused) return;
      const url = `${box.dataset.completes}?${new URLSearchParams({ q: text, at })}`;
      const answer = await fetch(url, { credentials: "same-origin", headers: { "HX-Request": "true" } }).catch(() => null);
      if (mine !== asked || !answer?.ok || answer.redirected || box.value !== text) return;
      holder.innerHTML = await answer.text();
      if (mine !== asked || document.activeElement !== box) return;
      chosen = -1;
      const some = options().length > 0;
      holder.hidden = !some && !holder.querySelector("p");
      box.setAttribute("aria-expanded", String(some));
      box.removeAttribute("aria-activedescendant");
    }, 120);
  };
  box.addEventListener("input", () => { refused = ""; ask(); });
  box.addEventListener("click", ask);
  box.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const open = !holder.hidden && options().length > 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (open) walk(event.key === "ArrowDown" ? chosen + 1 : chosen < 0 ? -1 : chosen - 1);
      else { refused = ""; ask(); }
    } else if (event.key === "Enter" && open && chosen >= 0) {
      event.preventDefault();
      take(options()[chosen]);
    } else if (event.key === "Escape" && !holder.hidden) {
      event.preventDefault();
      refused = box.value;
      close();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      ask();
    }
  });
  holder.addEventListener("pointerdown", (event) => event.preventDefault());
  holder.addEventListener("click", (event) => {
    const one = event.target.closest("[role=option]");
    if (one) take(one);
  });
  box.addEventListener("blur", () => { asked += 1; close(); });
})();
