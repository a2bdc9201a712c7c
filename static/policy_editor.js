// The policy editor: checks the text while a person writes, and completes its words. The page works without this
// file: the button Check does the same.
(() => {
  const form = document.querySelector("[data-policy-editor]");
  const box = form?.querySelector("textarea");
  if (!box) return;
  const words = JSON.parse(form.dataset.words || "{}");
  const list = form.querySelector(".policy-words");
  const result = document.getElementById("draft-check");
  const help = document.createElement("p");
  help.className = "help quiet";
  help.id = "policy-keys";
  help.textContent = "Ctrl+Space goes to the completions; Esc comes back.";
  list.before(help);
  box.setAttribute("aria-describedby", help.id);

  let timer, request = 0;
  const check = async () => {
    const number = ++request;
    if (!box.value.trim()) return;
    const body = new FormData(form);
    body.set("do", "check");
    try {
      const answer = await fetch(location.pathname, { method: "POST", body, headers: { "HX-Request": "true" } });
      const text = await answer.text();
      if (!answer.ok || number !== request) return;
      result.innerHTML = text; // from our own server, rendered by its templates
      const line = Number(result.querySelector("[data-line]")?.dataset.line || 0);
      box.classList.toggle("has-fault", line > 0);
      box.setAttribute("aria-invalid", String(line > 0));
      if (line) addLineButton(line);
    } catch { /* the button Check says what is wrong */ }
  };
  const addLineButton = (line) => {
    const button = Object.assign(document.createElement("button"), {
      type: "button", className: "button is-small", textContent: `Go to line ${line}`,
    });
    button.addEventListener("click", () => {
      const lines = box.value.split("\n");
      const from = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
      box.focus();
      box.setSelectionRange(from, from + (lines[line - 1] ?? "").length);
      box.scrollTop = (line - 5) * parseFloat(getComputedStyle(box).lineHeight);
    });
    result.querySelector("[data-line]").append(button);
  };
  const checkSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(check, 500);
  };

  // The word before the caret, and the key whose value it is in; "" where a key stands.
  const place = () => {
    const line = box.value.slice(0, box.selectionStart).split("\n").pop();
    const word = line.match(/[\w.*@/-]*$/)[0];
    const before = line.slice(0, line.length - word.length);
    const value = before.match(/(\w+):\s*(?:\[[^\]]*)?$/);
    const item = /^\s*-\s+$/.test(before) && !/^\s{0,2}-/.test(before);
    return { word, key: value ? value[1] : item ? "tools" : "" };
  };
  const insert = (text) => {
    const at = box.selectionStart, from = at - place().word.length;
    box.focus();
    box.setRangeText(text, from, at, "end");
    update();
  };
  const complete = () => {
    const { word, key } = place();
    const fitting = word || key ? (words[key] || []).filter((text) => text.startsWith(word) && text !== word) : [];
    list.replaceChildren(...fitting.slice(0, 10).map((text) => {
      const button = Object.assign(document.createElement("button"), {
        type: "button", className: "button is-small", textContent: text.trim(),
      });
      button.addEventListener("click", () => insert(text));
      return button;
    }));
    list.hidden = !fitting.length;
  };
  const update = () => {
    complete();
    checkSoon();
  };
  box.addEventListener("input", update);
  box.addEventListener("click", complete);
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey && event.code === "Space") {
      event.preventDefault();
      complete();
      list.querySelector("button")?.focus();
    }
  });
  list.addEventListener("keydown", (event) => {
    if (event.key === "Escape") box.focus();
  });
  form.addEventListener("change", (event) => event.target !== box && checkSoon());
  if (box.value.trim() && !result.querySelector("table")) check();
})();
