// Every page works without this file. No single key press records a vote.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const root = document.documentElement;

  // Times. The server renders UTC; readers can choose their own zone or ages.
  const padTwo = (number) => String(number).padStart(2, "0");
  const formatDay = (at) => `${at.getFullYear()}-${padTwo(at.getMonth() + 1)}-${padTwo(at.getDate())}`;
  const formatTime = (at) => `${padTwo(at.getHours())}:${padTwo(at.getMinutes())}:${padTwo(at.getSeconds())}`;
  const formatZone = (at) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" })
    .formatToParts(at).find((part) => part.type === "timeZoneName").value;
  const formatLocal = (at, form) => {
    if (form === "zone") return `${formatTime(at)} ${formatZone(at)}`;
    return form === "s" || form === "until" ? formatTime(at) : `${formatTime(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  };
  const formatAge = (at, from) => {
    const seconds = Math.round((from - at) / 1000);
    const [count, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]
      .map(([size, name]) => [Math.floor(Math.abs(seconds) / size), name])
      .find(([number]) => number) || [0, "s"];
    return seconds < 0 ? `in ${count} ${unit}` : `${count} ${unit} ago`;
  };
  const writeTime = (node, day, rest) => {
    const text = day && rest ? `${day} ${rest}` : day || rest;
    if (node.textContent === text) return;
    const daySpan = Object.assign(document.createElement("span"), { className: "day", textContent: day });
    node.replaceChildren(...(day && rest ? [daySpan, ` ${rest}`] : [text]));
  };
  // The server's content of each time, restored when the reader goes back to UTC.
  const originals = new WeakMap();
  const saveOriginal = (node) => {
    if (originals.has(node)) return;
    const parts = [...node.childNodes].map((part) => part.cloneNode(true));
    originals.set(node, { parts, title: node.title, form: node.dataset.form });
  };
  const restoreOriginal = (node) => {
    const original = originals.get(node);
    if (!original) return;
    node.replaceChildren(...original.parts.map((part) => part.cloneNode(true)));
    if (original.title) node.title = original.title; else node.removeAttribute("title");
    if (original.form) node.dataset.form = original.form;
  };
  // The column heading shows the day once if all times of the column are of the same day.
  const writeDayInHeading = (head, clock) => {
    const column = head.closest("th").cellIndex;
    const moments = all("tbody tr", head.closest("table"))
      .flatMap((row) => all("time", row.cells[column] ?? row).slice(0, 1));
    const days = new Set(moments.map((node) => formatDay(new Date(node.dateTime))));
    const isSeveralDays = clock === "local" && days.size > 1;
    moments.forEach((node) => { if (isSeveralDays) node.dataset.form = "ms"; });
    if (clock === "relative" || !days.size) head.textContent = "";
    else if (isSeveralDays) head.textContent = formatZone(new Date());
    else head.textContent = `${[...days][0]} ${formatZone(new Date(moments[0].dateTime))}`;
  };
  // On a page "as of" a past moment, ages in <main> count from that moment; elsewhere from now.
  const nowOf = (node) => {
    const past = Date.parse(document.querySelector("main [data-as-of]")?.dataset.asOf);
    return past && node.closest("main") ? past : Date.now();
  };
  const writeMoment = (node, clock) => {
    const at = new Date(node.dateTime), form = node.dataset.form, from = nowOf(node);
    if (Number.isNaN(at.getTime())) return;
    node.title = node.dateTime.replace("T", " ").replace("Z", " UTC");
    if (clock === "local") {
      writeTime(node, form === "time" ? "" : formatDay(at), form === "day" ? "" : formatLocal(at, form));
    } else if (form === "until") {
      const isSameDay = formatDay(at) === formatDay(new Date(from));
      writeTime(node, isSameDay ? "" : formatDay(at), `${formatTime(at)} (${formatAge(at, from)})`);
    } else writeTime(node, "", formatAge(at, from));
  };
  const writeTimes = (within, isClockChanged) => {
    const clock = root.dataset.clock;
    const moments = all("time[datetime]:not([data-form=fixed])", within);
    const heads = all("th [data-day]", within);
    if (isClockChanged) [...moments, ...heads].forEach(restoreOriginal);
    if (clock !== "local" && clock !== "relative") return;
    [...moments, ...heads].forEach(saveOriginal);
    heads.forEach((head) => writeDayInHeading(head, clock));
    moments.forEach((node) => writeMoment(node, clock));
  };
  writeTimes(document);
  setInterval(() => {
    if (!document.hidden && root.dataset.clock === "relative") writeTimes(document);
  }, 10000);
  document.addEventListener("htmx:afterSettle", (event) => writeTimes(event.target));
  // A change of the clock rewrites times without a reload, so that typed text is not lost.
  const clocks = document.getElementById("clock");
  clocks?.addEventListener("submit", async (event) => {
    const chosen = event.submitter;
    if (!chosen) return;
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(clocks));
    fields.set(chosen.name, chosen.value);
    const response = await fetch(clocks.action, { method: "POST", body: fields, redirect: "manual" })
      .catch(() => null);
    if (response?.type !== "opaqueredirect") {
      const { name, value } = chosen;
      clocks.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
      return clocks.submit();
    }
    root.dataset.clock = chosen.value;
    all("button[name=clock]", clocks).forEach((button) => { button.ariaPressed = String(button === chosen); });
    writeTimes(document, true);
  });

  // Keyboard shortcuts. They do nothing in fields, and readers can turn them off.
  const focus = (...selectors) => {
    selectors.map((selector) => document.querySelector(selector)).find(Boolean)?.focus();
  };
  const click = (selector) => document.querySelector(selector)?.click();
  const focusRow = (step) => {
    const links = all("main .ledger tbody tr, .inbox-list .entry")
      .map((row) => row.querySelector("h3 a, th a, td a")).filter((link) => link?.checkVisibility());
    const active = document.activeElement, last = links.length - 1;
    const index = links.map((link) => link.closest("tr, .entry"))
      .findIndex((row) => row.contains(active) || (active === document.body && row.ariaCurrent));
    const first = step > 0 ? 0 : last;
    const next = links[index < 0 ? first : Math.min(last, Math.max(0, index + step))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    d: () => chooseAnswer("deny"), y: () => chooseAnswer("approve"),
    o: () => focus(".run[tabindex]", ".run"), ".": () => click("#go-live"),
    j: () => focusRow(1), k: () => focusRow(-1), "/": () => focus("#jump"), "?": () => click("#help"),
    "[": () => click("main [rel=prev]"), "]": () => click("main [rel=next]"),
  };
  // d and y choose the button that Ctrl+Enter presses from the reason field; the hint names that button. If the
  // focus is on another row of the inbox, they open that row's request instead.
  const writeHint = (text) => all(".hint").forEach((node) => { node.textContent = text; });
  const chosenButton = () => document.querySelector("[data-chosen]");
  const chooseAnswer = (answer) => {
    const entry = document.activeElement.closest(".inbox-list .entry");
    if (entry && !entry.ariaCurrent) return entry.querySelector("a[data-gate]").click();
    const reason = document.querySelector("#reason");
    if (reason?.closest("[inert]")) return;
    const button = reason?.form.querySelector(`[name=answer][value=${answer}]`);
    if (!button || (button.disabled && !("settling" in button.dataset))) return;
    delete chosenButton()?.dataset.chosen;
    button.dataset.chosen = "";
    writeHint(`Ctrl+Enter: ${button.textContent.trim()}, Esc: back`);
    reason.focus();
  };
  addEventListener("keydown", (event) => {
    if (!event.target.matches?.("#reason") || event.target.closest("[inert]")) return;
    if (event.isComposing) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (chosenButton()) chosenButton().click();
      else writeHint("Ctrl+Enter means nothing yet: press a button, or Esc and then d or y.");
    } else if (event.key === "Escape") {
      delete chosenButton()?.dataset.chosen;
      writeHint("");
      document.querySelector(".gate-title")?.focus({ preventScroll: true });
    }
  });
  // "g" and then a letter opens a page of the navigation.
  let goPressedAt = 0;
  if (root.dataset.keys === "on") addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select")) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.repeat && !"jk".includes(event.key)) return;
    const link = goPressedAt > Date.now() - 1500
      && document.querySelector(`.rail [data-key="${CSS.escape(event.key)}"]`);
    goPressedAt = event.key === "g" ? Date.now() : 0;
    if (link) { event.preventDefault(); link.click(); }
    else if (Object.hasOwn(keys, event.key)) { event.preventDefault(); keys[event.key](); }
  });
})();

// Polling. A hidden tab does not poll. After two failed polls the page warns that it may be out of date.
(() => {
  let failures = 0;
  const isPoll = (event) => event.detail?.elt?.matches?.("[data-polls]");
  const isListRequest = (event) => event.detail?.elt?.matches?.("[data-lists]");
  const showWarning = (text) => {
    document.getElementById("stale")?.remove();
    const rows = document.querySelector("[data-polls], #news");
    if (!text || !rows) return;
    const callout = document.createElement("p");
    Object.assign(callout, { id: "stale", className: "callout is-unknown", textContent: text });
    callout.setAttribute("role", "status");
    rows.before(callout);
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (isPoll(event) && document.hidden) event.preventDefault();
  });
  // Errors and the sign-in page are not swapped in: they would replace the element that polls.
  const pathOf = (url) => url?.split("?")[0];
  const isWrongPage = ({ xhr, pathInfo }) => xhr.status >= 400
    || pathOf(pathInfo.responsePath) !== pathOf(pathInfo.requestPath);
  const POLLED = "[data-polls], .inbox-list, #pane, #rail";
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.matches(POLLED) && isWrongPage(event.detail)) event.detail.shouldSwap = false;
  });
  // Counts in the navigation and the title. A hidden tab updates them once a minute, so that its title is
  // current. After two failed polls they are hidden.
  const rail = () => document.getElementById("rail");
  let railFailures = 0, railPolledAt = Date.now();
  const showCounts = () => {
    const waiting = Number(rail()?.dataset.waiting ?? 0), isStale = railFailures > 1;
    rail()?.toggleAttribute("data-stale", isStale);
    const prefix = waiting && !isStale ? `(${waiting}) ` : "";
    document.title = prefix + document.title.replace(/^\(\d+\) /, "");
  };
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.elt.id !== "rail") return;
    if (document.hidden && Date.now() - railPolledAt < 59000) event.preventDefault();
    else railPolledAt = Date.now();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt.id !== "rail") return;
    railFailures = event.detail.successful && !isWrongPage(event.detail) ? 0 : railFailures + 1;
    showCounts();
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.matches("#rail, .inbox-list")) showCounts();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && rail() && window.htmx) window.htmx.trigger(rail(), "counts");
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const isAnswered = event.detail.successful && !isWrongPage(event.detail);
    if (isListRequest(event) && !isAnswered) {
      showWarning("The list is as it was: Gatebook did not answer, or you are signed out.");
    }
    if (!isPoll(event)) return;
    failures = isAnswered ? 0 : failures + 1;
    showWarning(failures > 1 ? "Gatebook has not answered twice. This page may be out of date; it retries every few seconds." : "");
  });
})();

// The inbox: countdowns, protection against accidental clicks, and requests opened in the pane.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const announce = (text) => {
    const live = document.getElementById("live");
    if (live) live.textContent = text;
  };
  const padTwo = (number) => String(number).padStart(2, "0");

  // Countdowns start at the seconds that the server rendered, so a wrong clock of the reader does not matter.
  // Screen readers announce the deadline at 5 minutes and at 1 minute only.
  const startedAt = new WeakMap();
  const updateCountdowns = () => all("[data-left]").forEach((node) => {
    if (!startedAt.has(node)) startedAt.set(node, performance.now());
    const elapsed = (performance.now() - startedAt.get(node)) / 1000;
    const left = Math.max(0, Math.round(node.dataset.left - elapsed));
    if (node.matches("b")) {
      if (node.matches("[data-announce]") && (left === 300 || left === 60)) announce(`Expires in ${left / 60} min`);
      return;
    }
    if (left < 3600) node.textContent = `${padTwo(Math.floor(left / 60))}:${padTwo(left % 60)}`;
    node.classList.toggle("soon", left < 300);
    if (left > 0) return;
    node.closest(".decide")?.querySelectorAll("button").forEach((button) => { button.disabled = true; });
  });
  setInterval(updateCountdowns, 1000);

  // A click meant for another page must not vote: buttons stay disabled for 700 ms after the page is shown, and
  // until the reader moves the pointer or presses a key. The hint explains a longer wait.
  const INERT = "The buttons wait until you move the pointer here or press a key.";
  const replaceHint = (before, after) => all(".hint").filter((node) => node.textContent === before)
    .forEach((node) => { node.textContent = after; });
  let timer, isSettled = false, isTouched = false;
  const buttons = () => all("[data-settle]");
  const enableButtons = () => {
    if (!isSettled) return;
    if (!isTouched) return replaceHint("", INERT);
    replaceHint(INERT, "");
    buttons().filter((button) => "settling" in button.dataset).forEach((button) => {
      button.disabled = false;
      delete button.dataset.settling;
    });
    all("[data-settled]").forEach((field) => { field.value = "1"; });
  };
  const disableButtons = () => {
    clearTimeout(timer);
    isSettled = isTouched = false;
    all("[data-settled]").forEach((field) => { field.value = ""; });
    buttons().filter((button) => !button.disabled).forEach((button) => {
      button.disabled = true;
      button.dataset.settling = "";
    });
    if (!document.hidden) timer = setTimeout(() => { isSettled = true; enableButtons(); }, 700);
  };
  for (const kind of ["pointermove", "pointerdown", "keydown"]) {
    addEventListener(kind, (event) => {
      if (!event.isTrusted || isTouched) return;
      isTouched = true;
      enableButtons();
    }, { capture: true, passive: true });
  }
  document.addEventListener("visibilitychange", disableButtons);
  addEventListener("pageshow", (event) => { if (event.persisted) disableButtons(); });
  disableButtons();

  // With the pane open the page itself does not scroll: Page Up, Page Down, Home and End scroll the facts.
  const SCROLL_STEPS = { PageDown: 0.9, PageUp: -0.9, End: Infinity, Home: -Infinity };
  addEventListener("keydown", (event) => {
    const facts = Object.hasOwn(SCROLL_STEPS, event.key) && isPaneShown() && pane.querySelector(".facts");
    if (!facts || event.ctrlKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, .facts, .inbox-list")) return;
    event.preventDefault();
    const distance = SCROLL_STEPS[event.key] * facts.clientHeight;
    if (Number.isFinite(distance)) facts.scrollTop += distance;
    else facts.scrollTop = distance > 0 ? facts.scrollHeight : 0;
  });

  // In wide windows a request opens in the pane; in narrow ones its link opens a page. While a request loads, the
  // pane shows the previous one with all controls disabled, and the list still marks that one. The URL names the
  // open request, so that Back, Forward and reload open it again.
  const pane = document.getElementById("pane");
  const isPaneShown = () => pane?.checkVisibility() && window.htmx;
  const gateUrl = (entry) => entry?.querySelector("a[data-gate]").getAttribute("href");
  let openUrl = pane?.querySelector(".gate-line a.push")?.getAttribute("href") ?? null, loading = null;
  const markOpenEntry = () => all(".entry").forEach((entry) => {
    if (gateUrl(entry) === openUrl) entry.setAttribute("aria-current", "true");
    else entry.removeAttribute("aria-current");
  });
  const storeInHistory = (method) => {
    const address = new URL(location.href);
    if (openUrl) address.searchParams.set("open", openUrl.split("/").at(-2));
    history[method]({ gate: openUrl }, "", address);
  };
  const openGate = async (url, { movesFocus, historyMethod }) => {
    if (loading?.url === url) return;
    window.htmx.trigger(pane, "htmx:abort");
    const request = loading = { url, movesFocus, historyMethod };
    document.getElementById("unopened")?.remove();
    pane.inert = true;
    disableButtons();
    await window.htmx.ajax("GET", url, { source: pane, target: pane, swap: "innerHTML settle:0s" })
      .catch(() => {});
    if (loading === request) showLoadError(request);
  };
  const showLoadError = (request) => {
    loading = null;
    pane.inert = false;
    disableButtons();
    if (!request.historyMethod) storeInHistory("replaceState");
    const callout = document.createElement("p");
    Object.assign(callout, { id: "unopened", className: "callout is-unknown" });
    const link = document.createElement("a");
    Object.assign(link, { href: request.url, textContent: "Open it as a page" });
    callout.setAttribute("role", "alert");
    const text = "The request that you chose did not open: Gatebook did not answer, or could not show it. ";
    callout.append(text, link);
    (pane.querySelector(".gate > header") || pane).append(callout);
  };
  pane && document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-gate]");
    if (!link || !isPaneShown()) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    openGate(link.getAttribute("href"), { movesFocus: true, historyMethod: "pushState" });
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target !== pane || !loading) return;
    const { url, movesFocus, historyMethod } = loading;
    const isSame = url === openUrl;
    [openUrl, loading] = [url, null];
    if (historyMethod) storeInHistory(isSame ? "replaceState" : historyMethod);
    markOpenEntry();
    pane.inert = false;
    disableButtons();
    updateCountdowns();
    showDraft();
    if (movesFocus) pane.querySelector(".gate-title")?.focus({ preventScroll: true });
  });
  pane && addEventListener("popstate", (event) => {
    const url = event.state?.gate;
    if (!url || !isPaneShown()) return location.reload();
    if (url !== openUrl) openGate(url, { movesFocus: true });
  });

  // The typed reason is stored in this tab, per request, until a vote with it is recorded.
  const showDraft = () => {
    const box = document.querySelector(".decide[data-draft]"), reason = box?.querySelector("#reason");
    const key = `draft:${box?.dataset.draft}`, text = sessionStorage.getItem(key);
    if (!text) return;
    if (reason) reason.value = text;
    else if ("answered" in box.dataset) sessionStorage.removeItem(key);
    else if (!box.querySelector(".draft-text")) {
      const line = document.createElement("p"), quote = document.createElement("q");
      Object.assign(quote, { className: "draft-text", textContent: text });
      line.append("Your draft reason: ", quote);
      box.querySelector(".quorum").before(line);
    }
  };
  document.addEventListener("input", (event) => {
    if (!event.target.matches("#reason")) return;
    const key = `draft:${event.target.closest(".decide[data-draft]")?.dataset.draft}`;
    if (event.target.value) sessionStorage.setItem(key, event.target.value);
    else sessionStorage.removeItem(key);
  });
  showDraft();

  // When the open request is updated, the scroll positions, ticks, focus and caret are restored. If the focused
  // element no longer exists, the message about the update gets the focus.
  let savedState = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const box = event.target;
    if (!box.matches(".gate-box") || event.detail.xhr.status !== 200 || !event.detail.shouldSwap) return;
    const active = document.activeElement, reason = box.querySelector("#reason");
    const isOption = active.name && active.value;
    const selector = isOption ? `[name="${active.name}"][value="${active.value}"]` : ".gate-title";
    savedState = {
      card: box.dataset.card,
      ticks: all(".gate-box .tick input:checked").map((input) => input.name),
      tops: [".facts", ".run"].map((part) => [part, box.querySelector(part)?.scrollTop ?? 0]),
      focus: !box.contains(active) ? "" : active.id ? `#${active.id}` : selector,
      caret: active === reason && reason ? [reason.selectionStart, reason.selectionEnd] : null,
    };
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    const box = event.target;
    if (!box.matches(".gate-box") || !savedState) return;
    const { card, ticks, tops, focus, caret } = savedState;
    savedState = null;
    if (card === box.dataset.card) {
      all(".gate-box .tick input").forEach((input) => { input.checked = ticks.includes(input.name); });
    }
    tops.forEach(([selector, top]) => {
      const part = box.querySelector(selector);
      if (part) part.scrollTop = top;
    });
    disableButtons();
    updateCountdowns();
    showDraft();
    if (box.dataset.title) {
      document.title = document.title.replace(
        /^(\(\d+\) )?.*( · Gatebook)$/, (_, count = "", end) => count + box.dataset.title + end);
    }
    const message = box.querySelector("#gate-news");
    if (message) announce(message.textContent);
    const target = focus && box.querySelector(focus);
    const fallback = message ?? box.querySelector(".gate-title");
    if (focus) (target && !target.disabled ? target : fallback).focus({ preventScroll: true });
    if (caret && target) target.setSelectionRange(...caret);
  });

  // A new list keeps the mark of the open request and the ticks.
  let tickedGates = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!event.target.matches(".inbox-list")) return;
    tickedGates = all(".inbox-list [name=gate]:checked").map((box) => box.value);
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!event.target.matches(".inbox-list")) return;
    all(".inbox-list [name=gate]").forEach((box) => { box.checked = tickedGates.includes(box.value); });
    markOpenEntry();
    updateCountdowns();
  });
  const firstLink = document.querySelector(".inbox-list a[data-gate]");
  if (firstLink && isPaneShown() && !("noAutoOpen" in pane.dataset)) {
    openGate(firstLink.getAttribute("href"), { historyMethod: "replaceState" });
  } else if (pane) storeInHistory("replaceState");
})();

// Focus. After a swap it returns to the same element, or to the first link of the new content. After a form it moves
// to the message about the result.
(() => {
  const RESTORED_ELSEWHERE = ".gate-box, #pane";
  const isSame = (saved) => (element) => saved.href
    ? element.getAttribute("href") === saved.href
    : saved.name && element.name === saved.name && element.value === saved.value;
  let saved = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const active = document.activeElement;
    if (event.target.matches(RESTORED_ELSEWHERE) || !event.target.contains(active)) return;
    const container = event.target.id ? `#${event.target.id}` : `.${event.target.classList[0]}`;
    saved = { container, href: active.getAttribute("href"), name: active.name, value: active.value };
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!saved || !event.target.matches(saved.container)) return; // the event also fires for out-of-band parts
    const links = [...event.target.querySelectorAll("a, button, input, select, textarea")];
    const next = links.find(isSame(saved)) ?? event.target.querySelector(".entry h3 a") ?? links[0];
    saved = null;
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

// Copy buttons are shown only if the browser allows access to the clipboard.
(() => {
  document.querySelectorAll("button[data-copies]").forEach((button) => {
    const field = document.getElementById(button.dataset.copies);
    if (!field || !navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      field.select();
      await navigator.clipboard.writeText(field.value).then(
        () => { button.textContent = "Copied"; }, () => { button.textContent = "Copy the selected text"; });
    });
  });
})();
