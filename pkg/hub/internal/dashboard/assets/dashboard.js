// What pages do beside being read: they follow changes by server-sent events. Everything works without.
"use strict";
(() => {
  const body = document.body;

  // Buttons that copy are shown where the browser lets a page copy: on HTTPS and on loopback.
  if (navigator.clipboard) {
    for (const button of document.querySelectorAll(".copy")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        const of = button.dataset.copyOf;
        try {
          await navigator.clipboard.writeText(of ? document.getElementById(of).textContent : button.dataset.copy);
          button.textContent = "Copied";
        } catch {
          button.textContent = "Not allowed";
        }
      });
    }
  }

  const mark = document.getElementById("follow");
  if (!mark || !window.EventSource || !window.htmx) return;

  const feed = document.getElementById("feed");
  let version = body.dataset.version;
  let last = body.dataset.feed;
  let source = null;
  let retry = 0;
  let dirty = false;
  let busy = false;

  const show = (state, text) => {
    if (mark.dataset.state === state) return;
    mark.dataset.state = state;
    mark.textContent = text;
  };

  // refresh fetches the page's own URL again, one request at a time.
  const refresh = () => {
    if (busy) {
      dirty = true;
      return;
    }
    dirty = false;
    htmx.ajax("GET", location.pathname + location.search, {
      source: "#content", target: "#content", select: "#view", swap: "innerHTML",
      headers: { "Dashboard-Refresh": "1" },
    });
  };

  const quiet = () => {
    const note = document.getElementById("quiet");
    if (note && feed) note.hidden = feed.children.length > 0;
  };

  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(feed ? "/events?feed=" + last : "/events?version=" + version);
    source.onopen = () => {
      retry = 0;
      show("on", "live");
    };
    source.addEventListener("changed", (event) => {
      version = event.data;
      refresh();
    });
    source.addEventListener("rows", (event) => {
      last = event.lastEventId;
      htmx.swap(feed, event.data, { swapStyle: "afterbegin" });
      while (feed.children.length > 200) feed.lastElementChild.remove();
      quiet();
    });
    source.addEventListener("end", () => {
      close();
      show("ended", "signed out");
      location.reload();
    });
    source.onerror = () => {
      show("off", "not live");
      if (source && source.readyState === EventSource.CLOSED) { // refused: too many, or signed out
        close();
        setTimeout(open, Math.min(60000, 5000 * ++retry));
      }
    };
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      show("off", "not live");
    } else {
      open();
    }
  });
  addEventListener("pagehide", close);
  // What is expanded stays so when the page's content is replaced.
  let expanded = [];
  body.addEventListener("htmx:beforeSwap", () => {
    expanded = Array.from(document.querySelectorAll("#content details[open]"), (details) => details.id);
  });
  body.addEventListener("htmx:afterSwap", () => {
    for (const id of expanded) document.getElementById(id)?.setAttribute("open", "");
  });
  body.addEventListener("htmx:beforeRequest", () => { busy = true; });
  body.addEventListener("htmx:afterRequest", () => {
    busy = false;
    if (dirty) refresh();
  });
  body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) location.reload();
  });
  quiet();
  open();
})();
