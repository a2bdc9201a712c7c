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
  const formatMinute = (at) => formatTime(at).slice(0, 5);
  const formatLocal = (at, form) => {
    if (form === "minute") return formatMinute(at);
    if (form === "zone") return `${formatTime(at)} ${formatZone(at)}`;
    return form === "s" || form === "until" ? formatTime(at) : `${formatTime(at)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  };
  const formatAge = (at, from) => {
    const seconds = Math.round((from - at) / 1000);
    const [count, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]
      .map(([size, name]) => [Math.floor(Math.abs(seconds) / size), name])
      .find(([number]) => number) || [0, "s"];
    return seconds < 0 ? `in ${count}\u00a0${unit}` : `${count}\u00a0${unit} ago`;
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
      writeTime(node, form === "time" || form === "minute" ? "" : formatDay(at), form === "day" ? "" : formatLocal(at, form));
    } else if (form === "minute") writeTime(node, "", `${formatMinute(at)} (${formatAge(at, from)})`);
    else if (form === "until") {
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
  document.addEventListener("gatebook:written", (event) => writeTimes(event.target));
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

  // Keyboard shortcuts. They do nothing where text is typed, and readers can turn them off.
  const TEXT_FIELDS = "textarea, select, input:not([type=checkbox], [type=radio])";
  const focus = (...selectors) => {
    selectors.map((selector) => document.querySelector(selector)).find(Boolean)?.focus();
  };
  const click = (selector) => document.querySelector(selector)?.click();
  // Rows of a list, those of open groups among them. Without a focused row, keys start from the open request.
  const ROWS = ".inbox-list .entry, main:not(:has(.inbox-list)) .ledger tbody tr";
  const findRow = (element) => element?.closest(ROWS);
  const findRowLink = (row) => row?.querySelector("h3 a, th a, td a");
  const findOpenRow = (rows) => {
    const row = document.querySelector(".inbox-list .entry[aria-current]");
    return rows.includes(row) ? row : findRow(row?.parentElement);
  };
  const focusRow = (step) => {
    const active = document.activeElement;
    const rows = all(ROWS).filter((row) => findRowLink(row)?.checkVisibility());
    const index = rows.indexOf(findRow(active) ?? findOpenRow(rows)), last = rows.length - 1;
    const first = step > 0 ? 0 : last;
    const isBelowRow = step < 0 && active.matches("summary"); // of the group of that row
    const next = rows[index < 0 ? first : Math.min(last, Math.max(0, isBelowRow ? index : index + step))];
    findRowLink(next)?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  const toggleTick = () => {
    const row = findRow(document.activeElement) ?? findOpenRow(all(ROWS));
    const box = row && all("[type=checkbox][name=gate]", row).find((each) => findRow(each) === row);
    if (box) return box.click();
    const live = row?.matches(".entry") && document.getElementById("live");
    if (live) live.textContent = "This request is decided alone: it has no tick box.";
  };
  const openKeyHelp = () => {
    const dialog = document.querySelector("dialog.key-help");
    if (dialog) dialog.showModal();
    else click("#help");
  };
  const keys = {
    d: () => chooseAnswer("deny"), y: () => chooseAnswer("approve"), x: toggleTick,
    o: () => focus(".run[tabindex]", ".run"), ".": () => click("#go-live"),
    j: () => focusRow(1), k: () => focusRow(-1), "/": () => focus("#jump"), "?": openKeyHelp,
    "[": () => click("main [rel=prev]"), "]": () => click("main [rel=next]"),
  };
  // d and y choose the button that Ctrl+Enter presses from the reason field; the hint names that button. If the
  // focus is on another row of the inbox, they open that row's request instead. A tick box is no row: it says
  // nothing about which request is meant, so they answer the open one.
  const writeHint = (text) => all(".hint").forEach((node) => { node.textContent = text; });
  const chosenButton = () => document.querySelector("[data-chosen]");
  const chooseAnswer = (answer) => {
    const active = document.activeElement, entry = active.closest(".inbox-list .entry");
    if (entry && !entry.ariaCurrent && !active.matches("[name=gate]")) return entry.querySelector("a[data-gate]").click();
    const reason = document.querySelector("#reason");
    if (reason?.closest("[inert]")) return;
    const isAnswer = (each) => each.name === "answer" && each.value === answer;
    const choices = [...reason?.form.elements ?? []].filter(isAnswer);
    const button = choices.find((each) => each.checkVisibility()) ?? choices[0];
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
      else if (root.dataset.keys !== "on") writeHint("Ctrl+Enter means nothing: press a button.");
      else writeHint("Ctrl+Enter means nothing yet: press a button, or Esc and then d or y.");
    } else if (event.key === "Escape") {
      delete chosenButton()?.dataset.chosen;
      writeHint("");
      document.querySelector(".gate-title")?.focus({ preventScroll: true });
    }
  });
  // Ctrl+K works with the single keys turned off, too, and in a text field.
  addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    const box = document.getElementById("jump");
    if (!box || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    box.focus();
    box.select();
  });
  // "g" and then a letter opens a page of the navigation.
  let goPressedAt = 0;
  if (root.dataset.keys === "on") addEventListener("keydown", (event) => {
    if (event.target.closest(TEXT_FIELDS)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const dialog = document.querySelector("dialog[open]");
    if (dialog) {
      if (event.key === "?") dialog.close();
      return;
    }
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
    if (document.hidden || !window.htmx) return;
    if (rail()) window.htmx.trigger(rail(), "counts");
    document.querySelectorAll("[data-polls]").forEach((node) => window.htmx.trigger(node, "look"));
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
    const panel = node.closest(".decide");
    if (!panel) return;
    const fields = [...panel.querySelectorAll("button"), ...document.getElementById("decide")?.elements ?? []];
    fields.filter((field) => field.matches("button")).forEach((button) => { button.disabled = true; });
    const box = elapsed - node.dataset.left < 3 && panel.closest("[data-polls]"); // the server tells how it ended
    if (box) window.htmx?.trigger(box, "look");
  });
  setInterval(updateCountdowns, 1000);

  // A click meant for another page must not vote: buttons stay disabled for 700 ms after the page or a request is
  // shown, and until the reader moves the pointer, touches the page or presses a key. The touch that enables them
  // presses none of them. The hint explains a longer wait.
  const INERT = matchMedia("(pointer: coarse)").matches
    ? "The buttons wait, so that no tap approves by accident: touch the page once."
    : "The buttons wait, so that no click approves by accident: move the pointer, touch the page or press a key.";
  const PRESS_AGAIN = "The buttons work now: press again.", SENDING = "Sending your answer…";
  const replaceHint = (before, after) => all(".hint").filter((node) => node.textContent === before)
    .forEach((node) => { node.textContent = after; });
  let timer, isSettled = false, isTouched = false, isPressMeant = false;
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
    isSettled = isTouched = isPressMeant = false;
    replaceHint(PRESS_AGAIN, "");
    all("[data-settled]").forEach((field) => { field.value = ""; });
    buttons().filter((button) => !button.disabled).forEach((button) => {
      button.disabled = true;
      button.dataset.settling = "";
    });
    if (!document.hidden) timer = setTimeout(() => { isSettled = true; enableButtons(); }, 700);
  };
  // A finger or button that was down before does not count, nor does a key that is held, nor a pointer that rests:
  // browsers report where it is after every layout.
  let pointerAt = "";
  const isPointerMoved = (event) => {
    const before = pointerAt;
    pointerAt = `${event.screenX} ${event.screenY}`;
    return before && before !== pointerAt && !event.buttons;
  };
  const isFresh = (event) => {
    if (event.type === "pointermove") return isPointerMoved(event);
    return event.type === "keydown" ? !event.repeat : event.type === "pointerdown" || !event.detail;
  };
  for (const kind of ["pointermove", "pointerdown", "keydown", "click"]) {
    addEventListener(kind, (event) => {
      if (!event.isTrusted) return;
      if (kind === "pointerdown") isPressMeant = isSettled && isTouched;
      if (isTouched || !isFresh(event)) return;
      isTouched = true;
      enableButtons();
    }, { capture: true, passive: true });
  }
  document.addEventListener("click", (event) => {
    if (!event.isTrusted || !event.detail || isPressMeant || !event.target.closest("[data-settle]")) return;
    event.preventDefault();
    event.stopPropagation();
    replaceHint("", PRESS_AGAIN);
  }, { capture: true });
  document.addEventListener("visibilitychange", disableButtons);
  disableButtons();

  // An answer without the reason that it requires is not sent: the page stays where it is, and the field says why.
  const refuseReason = (reason, text) => {
    const error = document.getElementById("e-reason")
      ?? Object.assign(document.createElement("p"), { id: "e-reason", className: "errorlist" });
    error.textContent = text;
    reason.after(error);
    reason.setAttribute("aria-invalid", "true");
    reason.setAttribute("aria-describedby", error.id);
    announce(text);
    reason.focus({ preventScroll: true });
    reason.scrollIntoView({ block: "center" });
  };
  const acceptReason = (reason) => {
    if (!reason.value.trim() || !reason.matches("[aria-invalid]")) return;
    reason.removeAttribute("aria-invalid");
    reason.removeAttribute("aria-describedby");
    document.getElementById("e-reason")?.remove();
  };
  document.addEventListener("submit", (event) => {
    const { submitter, target: form } = event, reason = form.querySelector("#reason");
    const text = submitter?.name === "answer" && reason?.getAttribute(`data-required-${submitter.value}`);
    if (!text || reason.value.trim()) return;
    event.preventDefault();
    refuseReason(reason, text);
  });

  // A second press while an answer is on its way sends nothing.
  const allowSending = (form) => {
    delete form.dataset.sent;
    replaceHint(SENDING, "");
  };
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || ![...form.elements].some((field) => field.matches("[data-settle]"))) return;
    if ("sent" in form.dataset) return event.preventDefault();
    form.dataset.sent = "";
    replaceHint("", SENDING);
    setTimeout(allowSending, 8000, form);
    if (event.submitter?.name === "answer" && location.pathname.includes("/batch/")) forgetTicks();
  });
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    all("form[data-sent]").forEach(allowSending);
    disableButtons();
  });

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
    if (method === "pushState") address.hash = ""; // it names a comment of the previous request
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
  // On a page of its own a request names its list, so that the answer leads to the next one.
  const listedUrl = (url) => {
    const address = new URL(url, location.href), here = new URLSearchParams(location.search);
    address.searchParams.set("from", "list");
    ["queue", "state", "risk", "repo", "tool", "rule", "after"].filter((name) => here.get(name))
      .forEach((name) => address.searchParams.set(name, here.get(name)));
    return address;
  };
  pane && document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-gate]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const url = link.getAttribute("href");
    if (isPaneShown()) openGate(url, { movesFocus: true, historyMethod: "pushState" });
    else location.assign(listedUrl(url));
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target !== pane || !loading) return;
    const { url, movesFocus, historyMethod } = loading;
    const isSame = url === openUrl;
    [openUrl, loading, typedDraft] = [url, null, null];
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

  // The typed reason is stored in this tab, per request, with its time, until a vote with it is recorded. One that
  // comes back says so. `typedDraft` is the one that is being typed: it was never away.
  let typedDraft = null;
  const draftKey = (box) => `draft:${box.dataset.draft}`;
  const readDraft = (key) => {
    const [, at, text] = /^(?:(\d{13}) )?([^]*)$/.exec(sessionStorage.getItem(key) ?? "");
    return { at: at ? new Date(Number(at)) : null, text };
  };
  const makeElement = (name, properties, ...parts) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...parts);
    return element;
  };
  const buildDraftNotice = (reason) => {
    const button = makeElement("button", { type: "button", className: "plain is-link" }, "Discard");
    const notice = makeElement("p", { className: "draft-back", hidden: true }, makeElement("span"), button);
    (reason.closest(".reason, .field") ?? reason).before(notice);
    return notice;
  };
  const announceDraft = (reason, at) => {
    const notice = reason.form.querySelector(".draft-back") ?? buildDraftNotice(reason);
    const moment = at?.toISOString(), isToday = moment?.slice(0, 10) === new Date().toISOString().slice(0, 10);
    const words = at && `${isToday ? "" : `${moment.slice(0, 10)} `}${moment.slice(11, 16)} UTC`;
    const time = at ? [" from ", makeElement("time", { dateTime: moment }, words)] : [];
    if (at) time[1].dataset.form = "zone";
    notice.querySelector("span").classList.toggle("is-near", Boolean(isToday));
    notice.querySelector("span").replaceChildren("Your draft", ...time, " is back.");
    notice.hidden = false;
    notice.dispatchEvent(new CustomEvent("gatebook:written", { bubbles: true }));
  };
  const hideDraftNotice = (form) => form?.querySelector(".draft-back")?.toggleAttribute("hidden", true);
  const addCopyButton = (quote) => {
    if (!navigator.clipboard || quote.nextElementSibling?.matches("button")) return;
    const button = makeElement("button", { type: "button", className: "button is-small" }, "Copy");
    button.addEventListener("click", () => navigator.clipboard.writeText(quote.textContent)
      .then(() => { button.textContent = "Copied"; }, () => button.remove()));
    quote.after(" ", button);
  };
  const showDraft = () => {
    const box = document.querySelector(".decide[data-draft]"), reason = box?.querySelector("#reason");
    if (!box) { all(".draft-text").forEach(addCopyButton); return; }
    const key = draftKey(box), { at, text } = readDraft(key);
    if (reason) {
      if (text) reason.value = text;
      if (key === typedDraft) hideDraftNotice(reason.form);
      else if (text) announceDraft(reason, at);
    } else if (text && "answered" in box.dataset) sessionStorage.removeItem(key);
    else if (text && !box.querySelector(".draft-text")) {
      const quote = makeElement("q", { className: "draft-text" }, text);
      box.querySelector(".quorum").before(makeElement("p", {}, "Your draft reason: ", quote));
    }
    all(".draft-text").forEach(addCopyButton);
  };
  document.addEventListener("input", (event) => {
    const box = event.target.closest(".decide[data-draft]");
    if (!box || !event.target.matches("#reason")) return;
    typedDraft = draftKey(box);
    hideDraftNotice(event.target.form);
    acceptReason(event.target);
    if (event.target.value) sessionStorage.setItem(typedDraft, `${Date.now()} ${event.target.value}`);
    else sessionStorage.removeItem(typedDraft);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".draft-back button");
    if (!button) return;
    event.preventDefault();
    const { form } = button, reason = form.querySelector("#reason");
    reason.value = "";
    reason.dispatchEvent(new Event("input", { bubbles: true }));
    announce("Draft discarded.");
    reason.focus();
    const url = button.getAttribute("formaction"), body = new URLSearchParams(new FormData(form));
    if (url) fetch(url, { method: "POST", body, redirect: "manual" }).catch(() => {}); // the server's copy of the draft
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

  // Ticks are stored in this tab: a new list, an answer and the way back from the batch page keep them, and an unticked
  // one stays unticked. On the batch page those of the server hold. A signed-out page forgets them.
  const tickBoxes = () => all("[type=checkbox][name=gate]");
  const readTicks = () => JSON.parse(sessionStorage.getItem("ticks") ?? "null");
  const forgetTicks = () => sessionStorage.removeItem("ticks");
  const storeTicks = () => {
    const shown = new Set(tickBoxes().map((box) => box.value));
    const others = (readTicks() ?? []).filter((id) => !shown.has(id)).slice(-100);
    const ticked = tickBoxes().filter((box) => box.checked).map((box) => box.value);
    sessionStorage.setItem("ticks", JSON.stringify([...others, ...ticked]));
  };
  const showTicks = () => {
    const ticked = readTicks();
    all(".inbox-list [type=checkbox][name=gate]").forEach((box) => {
      if (ticked) box.checked = ticked.includes(box.value);
      if (box.checked) box.closest("details")?.setAttribute("open", "");
    });
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("[type=checkbox][name=gate]")) storeTicks();
  });
  if (!document.getElementById("rail")) forgetTicks();
  else if (document.querySelector(".inbox-list")) showTicks();
  else if (tickBoxes().length) storeTicks();

  // A new list keeps the mark of the open request and the open groups.
  let openGroups = [];
  const groupUrl = (group) => gateUrl(group.closest(".entry"));
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.matches(".inbox-list")) openGroups = all(".entry details[open]").map(groupUrl);
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (!event.target.matches(".inbox-list")) return;
    all(".entry details").filter((group) => openGroups.includes(groupUrl(group)))
      .forEach((group) => { group.open = true; });
    showTicks();
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
    ?? document.querySelector(".confirm h1")
    ?? (flash && document.querySelector("#pane .gate-title, .gate:has(#decide) .gate-title")) ?? flash;
  if (!next || next.autofocus) return;
  if (!next.matches("input, select, textarea")) next.tabIndex = -1;
  next.focus({ preventScroll: next.matches(".gate-title, h1") });
  // On a narrow page the next request begins at the top, under the message about the last one.
  if (next.matches(".gate-title") && matchMedia("(width < 58rem)").matches) flash.scrollIntoView();
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

// Notifications and badge of this browser, if this reader turned them on under Reviewing. They show how many requests
// wait and nothing else; a page must be open.
(() => {
  const KEY = "notifies", person = document.documentElement.dataset.person;
  const rail = () => document.getElementById("rail");
  const isOn = () => person && localStorage.getItem(KEY) === person && window.Notification?.permission === "granted";
  const readMark = () => new URL(rail().getAttribute("hx-get"), location).searchParams.get("since").split("-").map(Number);
  const showBadge = (count) => {
    const done = count ? navigator.setAppBadge?.(count) : navigator.clearAppBadge?.();
    done?.catch(() => {});
  };
  const notify = (count) => {
    try {
      const text = count === 1 ? "1 request waits for approval" : `${count} requests wait for approval`;
      const notification = new Notification(text, { tag: "gatebook", body: "Open your queue in Gatebook." });
      notification.onclick = () => { focus(); location.assign("/approvals/?queue=me"); };
    } catch { /* some phones notify through service workers only; the badge and the title stay */ }
  };
  let newest = null;
  const showWaiting = () => {
    const [count, position] = rail() ? readMark() : [0, 0];
    if (isOn()) {
      showBadge(count);
      if (newest !== null && position > newest && document.hidden) notify(count);
    } else if (!person) showBadge(0);
    newest = position;
  };
  document.addEventListener("htmx:afterSettle", (event) => { if (event.target.id === "rail") showWaiting(); });
  showWaiting();

  const button = document.querySelector("[data-notifies]");
  if (!button) return;
  const status = document.querySelector("[data-notifies-status]");
  const describe = () => {
    button.hidden = !window.Notification || Notification.permission === "denied";
    button.textContent = isOn() ? "Turn off in this browser" : "Turn on in this browser";
    if (!window.Notification) status.textContent = "This browser offers no notifications here; they need HTTPS.";
    else if (button.hidden) status.textContent = "This browser refuses notifications of this site. Allow them in its settings.";
    else status.textContent = isOn() ? "On in this browser." : "Off in this browser.";
  };
  button.addEventListener("click", async () => {
    if (isOn()) {
      localStorage.removeItem(KEY);
      showBadge(0);
    } else if (await Notification.requestPermission() === "granted") localStorage.setItem(KEY, person);
    describe();
    showWaiting();
  });
  describe();
})();
