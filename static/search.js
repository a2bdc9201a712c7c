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

// Values of the builder's chosen field, from the same completions.
document.querySelector(".builder")?.addEventListener("focusin", async (event) => {
  const input = event.target.closest("input[name=v]"), list = input?.list;
  if (!list) return;
  const form = input.form, field = input.closest("li").querySelector("[name=f]").value;
  const q = `${form.elements.entity.value} ${field}:`;
  if (!field || list.dataset.q === q) return;
  list.dataset.q = q;
  const url = `${document.querySelector("[data-completes]").dataset.completes}?${new URLSearchParams({ q, at: q.length })}`;
  const response = await fetch(url, { headers: { "HX-Request": "true" } }).catch(() => null);
  if (!response?.ok || response.redirected) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  list.replaceChildren(...[...page.querySelectorAll("[role=option]")].map((option) =>
    Object.assign(document.createElement("option"), { value: option.dataset.text.trim() })));
});

// Select a range of bars: drag with a pointer, or focus the bars and use the arrow keys, Shift to extend, Enter to
// apply and Esc to cancel. Without this file, each bar is a link.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const prepare = (figure) => {
    if (!figure || figure.classList.contains("is-ready")) return;
    const { from, step, slots, field } = figure.dataset, svg = figure.querySelector("svg.histogram");
    const count = Number(slots), words = document.createElement("p");
    const mark = document.createElementNS(SVG, "rect");
    mark.setAttribute("class", "selected");
    mark.setAttribute("y", "0");
    mark.setAttribute("height", "71");
    words.className = "brush-words";
    words.setAttribute("role", "status");
    figure.append(words);
    figure.classList.add("is-ready");
    figure.tabIndex = 0;
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", "Bars by time. Arrow keys select a bar, Shift extends, Enter narrows, Escape cancels");
    let start = -1, end = -1, moved = false, pointer = null;
    const bounds = () => [Math.min(start, end), Math.max(start, end) + 1].map((slot) => Number(from) + slot * Number(step));
    const format = (us) => new Date(us / 1000).toISOString().slice(0, 19).replace("T", " ");
    const show = () => {
      if (start < 0) { mark.remove(); words.textContent = ""; return; }
      mark.setAttribute("x", `${Math.min(start, end) * 100 / count}%`);
      mark.setAttribute("width", `${(Math.abs(end - start) + 1) * 100 / count}%`);
      svg.append(mark);
      words.textContent = `${bounds().map(format).join(" to ")} UTC`;
    };
    const cancel = () => { start = end = -1; pointer = null; show(); };
    const apply = () => {
      const address = new URL(location.href), [since, until] = bounds();
      address.search = new URLSearchParams([...address.searchParams].filter(([name]) => !["before", "after", "apart"].includes(name)));
      address.searchParams.set("from", since);
      address.searchParams.set("to", until);
      if (field) address.searchParams.set("by", field);
      location.href = address;
    };
    const slotAt = (event) => {
      const box = svg.getBoundingClientRect();
      return Math.max(0, Math.min(count - 1, Math.floor((event.clientX - box.left) / box.width * count)));
    };
    svg.addEventListener("dragstart", (event) => event.preventDefault());
    svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pointer = event.pointerId;
      moved = false;
      start = end = slotAt(event);
    });
    svg.addEventListener("pointermove", (event) => {
      if (event.pointerId !== pointer) return;
      const slot = slotAt(event);
      if (slot === end && !moved) return;
      if (!moved) svg.setPointerCapture(pointer);
      moved = true;
      end = slot;
      show();
    });
    svg.addEventListener("pointerup", (event) => {
      if (event.pointerId !== pointer) return;
      pointer = null;
      if (moved) apply();
      else cancel();
    });
    svg.addEventListener("pointercancel", cancel);
    svg.addEventListener("click", (event) => { if (moved) event.preventDefault(); }, true);
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.target !== figure) return;
      if (step) {
        end = start < 0 ? (step > 0 ? 0 : count - 1) : Math.max(0, Math.min(count - 1, end + step));
        if (start < 0 || !event.shiftKey) start = end;
        show();
      } else if (event.key === "Enter" && start >= 0) apply();
      else if (event.key === "Escape" && start >= 0) cancel();
      else return;
      event.preventDefault();
    });
  };
  prepare(document.querySelector(".brush"));
  document.addEventListener("htmx:afterSettle", () => prepare(document.querySelector(".brush")));
})();
