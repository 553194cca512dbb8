// Times are written in UTC by the server. This adds the reader's own time to every tooltip, and, by
// a setting that the browser keeps, writes it in their place. Without scripts all stays UTC.
"use strict";
(() => {
  const KEY = "flowmark.times";
  const button = document.getElementById("times");
  const zone = document.getElementById("zone");
  if (!button || !zone) return;

  const name = Intl.DateTimeFormat().resolvedOptions().timeZone || "local";
  const two = (number, length = 2) => String(number).padStart(length, "0");
  const day = (at) => `${two(at.getFullYear(), 4)}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const offset = (at) => {
    const minutes = -at.getTimezoneOffset();
    const size = Math.abs(minutes);
    return `${minutes < 0 ? "−" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
  };

  // The shape of the text says what of the time is written: a day, a clock, or both.
  const written = (text, at, local) => {
    if (Number.isNaN(at.getTime()) || !local) return text;
    const fraction = (text.match(/\.\d+/) || [""])[0];
    if (/^\d{4}-\d\d-\d\d$/.test(text)) return day(at);
    if (/^\d\d:\d\d(:\d\d)?(\.\d+)?Z?$/.test(text)) {
      return /^\d\d:\d\d(Z|$)/.test(text) ? clock(at).slice(0, 5) : clock(at) + fraction;
    }
    if (/^\d{4}-\d\d-\d\d \d\d:\d\d/.test(text)) {
      return `${day(at)} ${clock(at)}${fraction}${text.endsWith("Z") ? offset(at) : ""}`;
    }
    return text;
  };

  const texts = new WeakMap();
  const show = (local) => {
    for (const element of document.querySelectorAll("time[datetime]")) {
      if (!texts.has(element)) texts.set(element, element.textContent);
      const at = new Date(element.dateTime);
      element.textContent = written(texts.get(element), at, local);
      if (!Number.isNaN(at.getTime())) {
        element.title = `${element.dateTime}\n${day(at)} ${clock(at)} ${offset(at)} ${name}`;
      }
    }
    zone.textContent = local ? `Times local, ${name}; charts UTC.` : "All times UTC.";
    button.textContent = local ? "Show UTC" : "Show local times";
    button.setAttribute("aria-pressed", String(local));
  };

  let local = false;
  try {
    local = localStorage.getItem(KEY) === "local";
  } catch {
    // A browser that keeps nothing shows UTC on every page.
  }
  show(local);
  button.hidden = false;
  button.addEventListener("click", () => {
    local = !local;
    show(local);
    try {
      localStorage.setItem(KEY, local ? "local" : "utc");
    } catch {
      // As above: the setting holds for this page.
    }
  });
})();
