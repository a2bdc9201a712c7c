// Gatebook. Everything works without this file; it retells times and moves about. No single key decides anything.
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
    const links = all("main .ledger tbody tr, .desk-list .entry").map((row) => row.querySelector("h3 a, th a, td a")).filter((link) => link?.checkVisibility());
    const row = (link) => link.closest("tr, .entry");
    const here = links.findIndex((link) => row(link).contains(document.activeElement) || (document.activeElement === document.body && row(link).ariaCurrent));
    const next = links[here < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, here + by))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    d: () => mean("deny"), y: () => mean("approve"), o: () => focus(".run[tabindex]", ".run"), ".": () => follow("#go-live"),
    j: () => step(1), k: () => step(-1), "/": () => focus("#go"), "?": () => follow("#help"),
    "[": () => follow("main [rel=prev]"), "]": () => follow("main [rel=next]"),
  };
  // d and y only say which button Ctrl+Enter in the reason means, and the page says it after them. While another row
  // than that of the open request is in focus they mean nothing: they open it.
  const hint = (words) => all(".hint").forEach((node) => { node.textContent = words; });
  const meant = () => document.querySelector("[data-meant]");
  const mean = (answer) => {
    const entry = document.activeElement.closest(".desk-list .entry");
    if (entry && !entry.ariaCurrent) return entry.querySelector("a[data-gate]").click();
    const reason = document.querySelector("#reason");
    if (reason?.closest("[inert]")) return;
    const button = reason?.form.querySelector(`[name=answer][value=${answer}]`);
    if (!button || (button.disabled && !("settling" in button.dataset))) return;
    delete meant()?.dataset.meant;
    button.dataset.meant = "";
    hint(`Ctrl+Enter: ${button.textContent.trim()}, Esc: back`);
    reason.focus();
  };
  addEventListener("keydown", (event) => {
    if (!event.target.matches?.("#reason") || event.target.closest("[inert]") || event.isComposing) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      meant() ? meant().click() : hint("Ctrl+Enter means nothing yet: press a button, or Esc and then d or y.");
    } else if (event.key === "Escape") {
      delete meant()?.dataset.meant;
      hint("");
      document.querySelector(".gate-title")?.focus({ preventScroll: true });
    }
  });
  let going = 0;
  if (root.dataset.keys === "on") addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey || event.repeat && !"jk".includes(event.key)) return;
    const room = going > Date.now() - 1500 && document.querySelector(`.rail [data-key="${CSS.escape(event.key)}"]`);
    going = event.key === "g" ? Date.now() : 0;
    if (room) { event.preventDefault(); room.click(); }
    else if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
  });
})();

// Polling: a hidden tab asks nothing; after two tries without an answer the page says that it may be out of date. A list
// that was asked for takes the place of the old one alone, so that nothing typed beside it is lost.
(() => {
  let failures = 0;
  const polls = (event) => event.detail?.elt?.matches?.("[data-polls]");
  const lists = (event) => event.detail?.elt?.matches?.("[data-lists]");
  const stale = (says) => {
    document.getElementById("stale")?.remove();
    const rows = document.querySelector("[data-polls], #news");
    if (!says || !rows) return;
    const notice = Object.assign(document.createElement("p"), { id: "stale", className: "notice is-unknown", textContent: says });
    notice.setAttribute("role", "status");
    rows.before(notice);
  };
  document.addEventListener("htmx:beforeRequest", (event) => { if (polls(event) && document.hidden) event.preventDefault(); });
  // A refusal, or the sign-in page, in its place would take away what asks again.
  const path = (text) => text?.split("?")[0];
  const astray = ({ xhr, pathInfo }) => xhr.status >= 400 || path(pathInfo.responsePath) !== path(pathInfo.requestPath);
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.matches("[data-polls], .desk-list, #pane") && astray(event.detail)) event.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const answered = event.detail.successful && !astray(event.detail);
    if (lists(event) && !answered) stale("The list is as it was: Gatebook did not answer, or you are signed out.");
    if (!polls(event)) return;
    failures = answered ? 0 : failures + 1;
    stale(failures > 1 ? "Gatebook has not answered twice. What you see may be out of date; it is asked again every few seconds." : "");
  });
})();

// The desk: deadlines tick, an answer settles, and a request opens beside the list where there is room.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const say = (words) => { const live = document.getElementById("live"); if (live) live.textContent = words; };
  const two = (number) => String(number).padStart(2, "0");

  // The server wrote what is left when it made the page; here it is counted on. Told aloud at 5 min and at 1 min only.
  const began = new WeakMap();
  const tick = () => all("[data-left]").forEach((node) => {
    if (!began.has(node)) began.set(node, performance.now());
    const left = Math.max(0, Math.round(node.dataset.left - (performance.now() - began.get(node)) / 1000));
    if (node.matches("b")) return node.matches("[data-tell]") && (left === 300 || left === 60) ? say(`Expires in ${left / 60} min`) : undefined;
    if (left < 3600) node.textContent = `${two(Math.floor(left / 60))}:${two(left % 60)}`;
    node.classList.toggle("soon", left < 300);
    if (left === 0) node.closest(".decide")?.querySelectorAll("button").forEach((button) => { button.disabled = true; });
  });
  setInterval(tick, 1000);

  // Nobody decides by a click that was meant for another page: for 700 ms after the page comes into view, and until a
  // real pointer or key has moved in it, the buttons do nothing. Why they do nothing is said where it lasts.
  const INERT = "The buttons wait until you move the pointer here or press a key.";
  const told = (from, to) => all(".hint").filter((node) => node.textContent === from).forEach((node) => { node.textContent = to; });
  let timer, settled = false, touched = false;
  const buttons = () => all("[data-settle]");
  const open = () => {
    if (settled) told(touched ? INERT : "", touched ? "" : INERT);
    if (!settled || !touched) return;
    buttons().filter((button) => "settling" in button.dataset).forEach((button) => { button.disabled = false; delete button.dataset.settling; });
    all("[data-settled]").forEach((field) => { field.value = "1"; });
  };
  const settle = () => {
    clearTimeout(timer);
    settled = touched = false;
    all("[data-settled]").forEach((field) => { field.value = ""; });
    buttons().filter((button) => !button.disabled).forEach((button) => { button.disabled = true; button.dataset.settling = ""; });
    if (!document.hidden) timer = setTimeout(() => { settled = true; open(); }, 700);
  };
  for (const kind of ["pointermove", "pointerdown", "keydown"]) {
    addEventListener(kind, (event) => { if (event.isTrusted && !touched) { touched = true; open(); } }, { capture: true, passive: true });
  }
  document.addEventListener("visibilitychange", settle);
  addEventListener("pageshow", (event) => { if (event.persisted) settle(); });
  settle();

  // Beside the list the facts scroll, not the page: the keys that turn pages turn theirs, wherever else the focus is.
  const turns = { PageDown: 0.9, PageUp: -0.9, End: Infinity, Home: -Infinity };
  addEventListener("keydown", (event) => {
    const facts = Object.hasOwn(turns, event.key) && shown() && pane.querySelector(".facts");
    if (!facts || event.ctrlKey || event.altKey || event.target.closest("input, textarea, select, .facts, .desk-list")) return;
    event.preventDefault();
    const by = turns[event.key] * facts.clientHeight;
    facts.scrollTop = Number.isFinite(by) ? facts.scrollTop + by : by > 0 ? facts.scrollHeight : 0;
  });

  // Where the pane is shown, a request opens in it; everywhere else its link is a link. Until the answer is there the
  // pane holds the request before: nothing in it can be pressed, and the list goes on marking that one.
  const pane = document.getElementById("pane");
  const shown = () => pane?.checkVisibility() && window.htmx;
  const url = (entry) => entry?.querySelector("a[data-gate]").getAttribute("href");
  let here = url(document.querySelector(".entry[aria-current]")), opening = null;
  const mark = () => all(".entry").forEach((entry) => {
    if (url(entry) === here) entry.setAttribute("aria-current", "true");
    else entry.removeAttribute("aria-current");
  });
  const show = async (link, moves) => {
    const at = link.getAttribute("href");
    if (opening?.url === at) return;
    window.htmx.trigger(pane, "htmx:abort");
    const mine = opening = { url: at, moves };
    document.getElementById("unopened")?.remove();
    pane.inert = true;
    settle();
    await window.htmx.ajax("GET", mine.url, { source: pane, target: pane, swap: "innerHTML settle:0s" }).catch(() => {});
    if (opening === mine) refuse(mine);
  };
  const refuse = (asked) => {
    opening = null;
    pane.inert = false;
    settle();
    const notice = Object.assign(document.createElement("p"), { id: "unopened", className: "notice is-unknown" });
    const page = Object.assign(document.createElement("a"), { href: asked.url, textContent: "Open it as a page" });
    notice.setAttribute("role", "alert");
    notice.append("The request that you chose did not open: Gatebook did not answer, or could not show it. ", page);
    (pane.querySelector(".gate > header") || pane).append(notice);
  };
  pane && document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-gate]");
    if (!link || !shown() || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    show(link, true);
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target !== pane || !opening) return;
    const { url: at, moves } = opening;
    [here, opening] = [at, null];
    mark();
    pane.inert = false;
    settle();
    tick();
    if (moves) pane.querySelector(".gate-title")?.focus({ preventScroll: true });
  });

  // Other rows in place of the old: the open request stays marked, and what was ticked stays ticked.
  let ticked = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.matches(".desk-list")) ticked = all(".desk-list [name=gate]:checked").map((box) => box.value);
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!event.target.matches(".desk-list")) return;
    all(".desk-list [name=gate]").forEach((box) => { box.checked = ticked.includes(box.value); });
    mark();
    tick();
  });
  const first = document.querySelector(".desk-list a[data-gate]");
  if (first && shown() && !("still" in pane.dataset)) show(first, false);
})();

// A button that copies what a field holds is there where the browser can.
(() => {
  document.querySelectorAll("button[data-copies]").forEach((button) => {
    const field = document.getElementById(button.dataset.copies);
    if (!field || !navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      field.select();
      await navigator.clipboard.writeText(field.value).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Copy what is marked"; });
    });
  });
})();
