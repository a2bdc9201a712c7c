// Completions of the search box. The page works without this file: fields are listed below the box. Enter searches,
// unless an option was chosen with the arrow keys.
(() => {
  const box = document.querySelector("input[data-completes]");
  if (!box) return;
  const list = Object.assign(document.createElement("div"), { className: "completions", hidden: true });
  box.parentElement.append(list);
  const attributes = {
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": "completion-list",
  };
  for (const [name, value] of Object.entries(attributes)) box.setAttribute(name, value);

  let requestNumber = 0, timer, chosen = -1, dismissedText = "";
  const options = () => [...list.querySelectorAll("[role=option]")];
  const close = () => {
    list.hidden = true;
    chosen = -1;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const choose = (index) => {
    const all = options();
    if (!all.length) return;
    chosen = (index + all.length) % all.length;
    all.forEach((option, number) => option.setAttribute("aria-selected", String(number === chosen)));
    box.setAttribute("aria-activedescendant", all[chosen].id);
    all[chosen].scrollIntoView({ block: "nearest" });
  };
  const insert = (option) => {
    const { from, to } = list.firstElementChild.dataset;
    const text = box.value, inserted = option.dataset.text;
    box.value = text.slice(0, from) + inserted + text.slice(to);
    const caret = Number(from) + inserted.length;
    close();
    box.focus();
    box.setSelectionRange(caret, caret);
    loadOptions();
  };
  const loadOptions = () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const number = ++requestNumber, text = box.value, at = box.selectionStart;
      if (document.activeElement !== box || text === dismissedText) return;
      const url = `${box.dataset.completes}?${new URLSearchParams({ q: text, at })}`;
      const response = await fetch(url, { credentials: "same-origin", headers: { "HX-Request": "true" } })
        .catch(() => null);
      if (number !== requestNumber || !response?.ok || response.redirected || box.value !== text) return;
      list.innerHTML = await response.text();
      if (number !== requestNumber || document.activeElement !== box) return;
      chosen = -1;
      const hasOptions = options().length > 0;
      list.hidden = !hasOptions && !list.querySelector("p");
      box.setAttribute("aria-expanded", String(hasOptions));
      box.removeAttribute("aria-activedescendant");
    }, 120);
  };
  box.addEventListener("input", () => { dismissedText = ""; loadOptions(); });
  box.addEventListener("click", loadOptions);
  box.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const isOpen = !list.hidden && options().length > 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (isOpen) choose(event.key === "ArrowDown" ? chosen + 1 : chosen < 0 ? -1 : chosen - 1);
      else { dismissedText = ""; loadOptions(); }
    } else if (event.key === "Enter" && isOpen && chosen >= 0) {
      event.preventDefault();
      insert(options()[chosen]);
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      dismissedText = box.value;
      close();
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      loadOptions();
    }
  });
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) insert(option);
  });
  box.addEventListener("blur", () => { requestNumber += 1; close(); });
})();
