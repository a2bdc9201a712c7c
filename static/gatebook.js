// Gatebook. Everything works without this file; it retells times and moves about. No key decides anything.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const root = document.documentElement;

  // Times: the server wrote them in UTC. Told in the reader's zone or as an age when they chose so.
  const two = (number) => String(number).padStart(2, "0");
  const local = (at, form) => {
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
    if (form === "day") return day;
    const exact = form === "s" ? clock : `${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
    return form === "time" ? exact : `${day} ${exact}`;
  };
  const age = (at) => {
    const seconds = Math.round((Date.now() - at) / 1000);
    const [count, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]
      .map(([size, word]) => [Math.floor(Math.abs(seconds) / size), word]).find(([number]) => number) || [0, "s"];
    return seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
  };
  const tell = (within) => {
    const clock = root.dataset.clock;
    if (clock !== "local" && clock !== "relative") return;
    all("time[datetime]:not([data-form=fixed])", within).forEach((node) => {
      const at = new Date(node.dateTime);
      if (Number.isNaN(at.getTime())) return;
      node.title = node.dateTime.replace("T", " ").replace("Z", " UTC");
      const text = clock === "local" ? local(at, node.dataset.form) : age(at);
      if (node.textContent !== text) node.textContent = text;
    });
  };
  tell(document);
  if (root.dataset.clock === "relative") setInterval(() => { if (!document.hidden) tell(document); }, 10000);
  document.addEventListener("htmx:afterSettle", (event) => tell(event.target));

  // Keys move and focus. Off inside fields, and off altogether when the reader says so.
  const focus = (...selectors) => selectors.map((one) => document.querySelector(one)).find(Boolean)?.focus();
  const follow = (selector) => document.querySelector(selector)?.click();
  const step = (by) => {
    const links = all("main .ledger tbody tr").map((row) => row.querySelector("th a, td a")).filter(Boolean);
    const here = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
    const next = links[here < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, here + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    j: () => step(1), k: () => step(-1), "/": () => focus("#q", "#go"), "?": () => follow("#help"),
    "[": () => follow("main [rel=prev]"), "]": () => follow("main [rel=next]"),
  };
  let going = 0;
  if (root.dataset.keys === "on") addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const room = going > Date.now() - 1500 && document.querySelector(`.rail [data-key="${CSS.escape(event.key)}"]`);
    going = event.key === "g" ? Date.now() : 0;
    if (room) { event.preventDefault(); room.click(); }
    else if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
  });
})();

// Polling: a hidden tab asks nothing; after two tries without an answer the page says that it may be out of date.
(() => {
  let failures = 0;
  const polls = (event) => event.detail?.elt?.matches?.("[data-polls]");
  const stale = (says) => {
    document.getElementById("stale")?.remove();
    const rows = document.querySelector("[data-polls]");
    if (!says || !rows) return;
    const notice = Object.assign(document.createElement("p"), { id: "stale", className: "notice is-unknown", textContent: says });
    notice.setAttribute("role", "status");
    rows.before(notice);
  };
  document.addEventListener("htmx:beforeRequest", (event) => { if (polls(event) && document.hidden) event.preventDefault(); });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!polls(event)) return;
    failures = event.detail.successful ? 0 : failures + 1;
    stale(failures > 1 ? "Gatebook has not answered twice. What you see may be out of date; it is asked again every 5 s." : "");
  });
})();
