// Gatebook. Everything works without this file; it retells times and moves about. No single key decides anything.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const root = document.documentElement;

  // Times: the server wrote them in UTC. Told in the reader's zone or as an age when they chose so.
  const two = (number) => String(number).padStart(2, "0");
  const dayOf = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clockOf = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const zoneOf = (at) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(at).find((part) => part.type === "timeZoneName").value;
  const local = (at, form) => {
    if (form === "zone") return `${clockOf(at)} ${zoneOf(at)}`;
    return form === "s" || form === "until" ? clockOf(at) : `${clockOf(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  };
  const age = (at, from) => {
    const seconds = Math.round((from - at) / 1000);
    const [count, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]
      .map(([size, word]) => [Math.floor(Math.abs(seconds) / size), word]).find(([number]) => number) || [0, "s"];
    return seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
  };
  const write = (node, day, rest) => {
    const text = day && rest ? `${day} ${rest}` : day || rest;
    if (node.textContent === text) return;
    const before = Object.assign(document.createElement("span"), { className: "day", textContent: day });
    node.replaceChildren(...(day && rest ? [before, ` ${rest}`] : [text]));
  };
  // As the server wrote it, for whoever goes back to UTC.
  const originals = new WeakMap();
  const remember = (node) => {
    if (!originals.has(node)) originals.set(node, { parts: [...node.childNodes].map((part) => part.cloneNode(true)), title: node.title, form: node.dataset.form });
  };
  const restore = (node) => {
    const original = originals.get(node);
    if (!original) return;
    node.replaceChildren(...original.parts.map((part) => part.cloneNode(true)));
    if (original.title) node.title = original.title; else node.removeAttribute("title");
    if (original.form) node.dataset.form = original.form;
  };
  // A column whose moments are all of one day names that day once, in its head: of the clock that is chosen.
  const tellHead = (head, clock) => {
    const column = head.closest("th").cellIndex;
    const moments = all("tbody tr", head.closest("table")).flatMap((row) => all("time", row.cells[column] ?? row).slice(0, 1));
    const days = new Set(moments.map((node) => dayOf(new Date(node.dateTime))));
    const several = clock === "local" && days.size > 1;
    moments.forEach((node) => { if (several) node.dataset.form = "ms"; });
    head.textContent = clock === "relative" || !days.size ? "" : several ? zoneOf(new Date()) : `${[...days][0]} ${zoneOf(new Date(moments[0].dateTime))}`;
  };
  // A page of the past counts ages from the moment that it shows; what stands around it is of now.
  const nowOf = (node) => {
    const past = Date.parse(document.querySelector("main [data-as-of]")?.dataset.asOf);
    return past && node.closest("main") ? past : Date.now();
  };
  const tellMoment = (node, clock) => {
    const at = new Date(node.dateTime), form = node.dataset.form, from = nowOf(node);
    if (Number.isNaN(at.getTime())) return;
    node.title = node.dateTime.replace("T", " ").replace("Z", " UTC");
    if (clock === "local") write(node, form === "time" ? "" : dayOf(at), form === "day" ? "" : local(at, form));
    else if (form === "until") write(node, dayOf(at) === dayOf(new Date(from)) ? "" : dayOf(at), `${clockOf(at)} (${age(at, from)})`);
    else write(node, "", age(at, from));
  };
  const tell = (within, again) => {
    const clock = root.dataset.clock, moments = all("time[datetime]:not([data-form=fixed])", within), heads = all("th [data-day]", within);
    if (again) [...moments, ...heads].forEach(restore);
    if (clock !== "local" && clock !== "relative") return;
    [...moments, ...heads].forEach(remember);
    heads.forEach((head) => tellHead(head, clock));
    moments.forEach((node) => tellMoment(node, clock));
  };
  tell(document);
  setInterval(() => { if (!document.hidden && root.dataset.clock === "relative") tell(document); }, 10000);
  document.addEventListener("htmx:afterSettle", (event) => tell(event.target));
  // Another clock retells the page that is there: nothing that was typed in it is sent away.
  const clocks = document.getElementById("clock");
  clocks?.addEventListener("submit", async (event) => {
    const chosen = event.submitter;
    if (!chosen) return;
    event.preventDefault();
    const sent = new URLSearchParams(new FormData(clocks));
    sent.set(chosen.name, chosen.value);
    const answer = await fetch(clocks.action, { method: "POST", body: sent, redirect: "manual" }).catch(() => null);
    if (answer?.type !== "opaqueredirect") {
      clocks.append(Object.assign(document.createElement("input"), { type: "hidden", name: chosen.name, value: chosen.value }));
      return clocks.submit();
    }
    root.dataset.clock = chosen.value;
    all("button[name=clock]", clocks).forEach((button) => { button.ariaPressed = String(button === chosen); });
    tell(document, true);
  });

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
    const callout = Object.assign(document.createElement("p"), { id: "stale", className: "callout is-unknown", textContent: says });
    callout.setAttribute("role", "status");
    rows.before(callout);
  };
  document.addEventListener("htmx:beforeRequest", (event) => { if (polls(event) && document.hidden) event.preventDefault(); });
  // A refusal, or the sign-in page, in its place would take away what asks again.
  const path = (text) => text?.split("?")[0];
  const astray = ({ xhr, pathInfo }) => xhr.status >= 400 || path(pathInfo.responsePath) !== path(pathInfo.requestPath);
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.matches("[data-polls], .desk-list, #pane, #rail") && astray(event.detail)) event.detail.shouldSwap = false;
  });
  // The counts of the rail, on every page. The title begins with how many requests wait, also of a tab that nobody looks
  // at: that one asks once a minute. What is not known any more is not shown.
  const rail = () => document.getElementById("rail");
  let lost = 0, polled = Date.now();
  const count = () => {
    const waits = Number(rail()?.dataset.waiting ?? 0), known = lost < 2;
    rail()?.toggleAttribute("data-stale", !known);
    document.title = (waits && known ? `(${waits}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.id !== "rail") return;
    if (document.hidden && Date.now() - polled < 59000) event.preventDefault();
    else polled = Date.now();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt.id !== "rail") return;
    lost = event.detail.successful && !astray(event.detail) ? 0 : lost + 1;
    count();
  });
  document.addEventListener("htmx:afterSettle", (event) => { if (event.target.matches("#rail, .desk-list")) count(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && rail() && window.htmx) window.htmx.trigger(rail(), "counts"); });
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
  // pane holds the request before: nothing in it can be pressed, and the list goes on marking that one. Which one is
  // open stands in the address, so that Back, Forward and a reload lead to it.
  const pane = document.getElementById("pane");
  const shown = () => pane?.checkVisibility() && window.htmx;
  const url = (entry) => entry?.querySelector("a[data-gate]").getAttribute("href");
  const shownInPane = () => pane?.querySelector(".gate-line a.push")?.getAttribute("href") ?? null;
  let here = shownInPane(), opening = null;
  const mark = () => all(".entry").forEach((entry) => {
    if (url(entry) === here) entry.setAttribute("aria-current", "true");
    else entry.removeAttribute("aria-current");
  });
  const remember = (how) => {
    const address = new URL(location.href);
    if (here) address.searchParams.set("open", here.split("/").at(-2));
    history[how]({ gate: here }, "", address);
  };
  const show = async (at, { moves, how }) => {
    if (opening?.url === at) return;
    window.htmx.trigger(pane, "htmx:abort");
    const mine = opening = { url: at, moves, how };
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
    if (!asked.how) remember("replaceState");
    const callout = Object.assign(document.createElement("p"), { id: "unopened", className: "callout is-unknown" });
    const page = Object.assign(document.createElement("a"), { href: asked.url, textContent: "Open it as a page" });
    callout.setAttribute("role", "alert");
    callout.append("The request that you chose did not open: Gatebook did not answer, or could not show it. ", page);
    (pane.querySelector(".gate > header") || pane).append(callout);
  };
  pane && document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-gate]");
    if (!link || !shown() || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    show(link.getAttribute("href"), { moves: true, how: "pushState" });
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target !== pane || !opening) return;
    const { url: at, moves, how } = opening;
    const same = at === here;
    [here, opening] = [at, null];
    if (how) remember(same ? "replaceState" : how);
    mark();
    pane.inert = false;
    settle();
    tick();
    draft();
    if (moves) pane.querySelector(".gate-title")?.focus({ preventScroll: true });
  });
  pane && addEventListener("popstate", (event) => {
    const at = event.state?.gate;
    if (!at || !shown()) return location.reload();
    if (at !== here) show(at, { moves: true });
  });

  // What is typed waits in this tab, for each request apart, until an answer with it is recorded.
  const draft = () => {
    const box = document.querySelector(".decide[data-draft]"), reason = box?.querySelector("#reason");
    const key = `draft:${box?.dataset.draft}`, words = sessionStorage.getItem(key);
    if (!words) return;
    if (reason) reason.value = words;
    else if ("answered" in box.dataset) sessionStorage.removeItem(key);
    else if (!box.querySelector(".kept")) {
      const line = Object.assign(document.createElement("p"), { textContent: "Your draft reason: " });
      line.append(Object.assign(document.createElement("q"), { className: "kept", textContent: words }));
      box.querySelector(".quorum").before(line);
    }
  };
  document.addEventListener("input", (event) => {
    if (!event.target.matches("#reason")) return;
    const key = `draft:${event.target.closest(".decide[data-draft]")?.dataset.draft}`;
    if (event.target.value) sessionStorage.setItem(key, event.target.value);
    else sessionStorage.removeItem(key);
  });
  draft();

  // The open request as it is now, in place of what somebody has before them: words, ticks and the place they have come
  // to are carried over, and where what they were at is gone, the news of it takes the focus.
  let carried = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const box = event.target;
    if (!box.matches(".gate-box") || event.detail.xhr.status !== 200 || !event.detail.shouldSwap) return;
    const at = document.activeElement, reason = box.querySelector("#reason");
    carried = {
      card: box.dataset.card,
      ticks: all(".gate-box .tick input:checked").map((tick) => tick.name),
      tops: [".facts", ".run"].map((part) => [part, box.querySelector(part)?.scrollTop ?? 0]),
      focus: !box.contains(at) ? "" : at.id ? `#${at.id}` : at.name && at.value ? `[name="${at.name}"][value="${at.value}"]` : ".gate-title",
      caret: at === reason && reason ? [reason.selectionStart, reason.selectionEnd] : null,
    };
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const box = event.target;
    if (!box.matches(".gate-box") || !carried) return;
    const { card, ticks, tops, focus, caret } = carried;
    carried = null;
    if (card === box.dataset.card) all(".gate-box .tick input").forEach((tick) => { tick.checked = ticks.includes(tick.name); });
    tops.forEach(([part, top]) => { const one = box.querySelector(part); if (one) one.scrollTop = top; });
    settle();
    tick();
    draft();
    if (box.dataset.title) document.title = document.title.replace(/^(\(\d+\) )?.*( · Gatebook)$/, (whole, count = "", end) => count + box.dataset.title + end);
    const news = box.querySelector("#gate-news");
    if (news) say(news.textContent);
    const found = focus && box.querySelector(focus);
    if (focus) (found && !found.disabled ? found : news ?? box.querySelector(".gate-title")).focus({ preventScroll: true });
    if (caret && found) found.setSelectionRange(...caret);
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
  if (first && shown() && !("still" in pane.dataset)) show(first.getAttribute("href"), { how: "replaceState" });
  else if (pane) remember("replaceState");
})();

// Focus. After a swap it stays on the same thing, or goes to what came in its place; after a step of a form it is on what
// came of it, so that the next step begins there and not at the top of the page.
(() => {
  const own = ".gate-box, #pane"; // see to it themselves
  const same = (held) => (one) => held.href ? one.getAttribute("href") === held.href : held.name && one.name === held.name && one.value === held.value;
  let held = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const at = document.activeElement;
    const where = event.target.id ? `#${event.target.id}` : `.${event.target.classList[0]}`;
    if (!event.target.matches(own) && event.target.contains(at)) held = { where, href: at.getAttribute("href"), name: at.name, value: at.value };
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!held || !event.target.matches(held.where)) return; // a swap may bring other parts along
    const links = [...event.target.querySelectorAll("a, button, input, select, textarea")];
    const next = links.find(same(held)) ?? event.target.querySelector(".entry h3 a") ?? links[0];
    held = null;
    if (document.activeElement === document.body) next?.focus({ preventScroll: true });
  });
  if (document.activeElement !== document.body || location.hash) return;
  const flash = document.querySelector("main ul.flash");
  const next = document.querySelector("main [aria-invalid=true]") ?? document.querySelector("main [role=alert]")
    ?? document.querySelector(".confirm h1") ?? (flash && document.querySelector("#pane .gate-title")) ?? flash;
  if (!next) return;
  if (!next.matches("input, select, textarea")) next.tabIndex = -1;
  next.focus({ preventScroll: next.matches(".gate-title, h1") });
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
