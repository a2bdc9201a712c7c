// The pages work without this file.

// The theme requests the search index on every page, and the index is larger than the page.
// Delay this request until somebody enters the search. A page with marked words needs it at once.
(() => {
  const { open, send } = XMLHttpRequest.prototype;
  const isIndex = Symbol("whether this request is for the search index");
  XMLHttpRequest.prototype.open = function (method, url, ...rest) {
    this[isIndex] = String(url).endsWith("/search/search_index.json");
    return open.call(this, method, url, ...rest);
  };
  XMLHttpRequest.prototype.send = function (body) {
    const form = document.forms.namedItem("search");
    const parameters = new URLSearchParams(location.search);
    if (!this[isIndex] || parameters.has("h") || parameters.has("q")) return send.call(this, body);
    form.addEventListener("focusin", () => send.call(this, body), { once: true });
  };
})();

// A table that is wider than the page scrolls; the keyboard scrolls only what can have the focus.
addEventListener("load", () => {
  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((each) => observer.observe(each));
});

// On a narrow page, labels open the menu and the search. Give the keyboard a button in each.
for (const [id, name] of [["__drawer", "Menu"], ["__search", "Search"]]) {
  const label = document.querySelector(`label.md-header__button[for=${id}]`);
  const button = Object.assign(document.createElement("button"), { type: "button", ariaLabel: name });
  button.append(...label.childNodes);
  button.addEventListener("click", () => document.getElementById(id).click());
  label.append(button);
}
