// What the page does beyond HTML: it keeps views fresh, and shows that it works. All else works without it.
const SECONDS = 5;

async function refresh() {
  const main = document.querySelector("main[data-refreshed]");
  const toggle = document.getElementById("live");
  if (!main || document.hidden || toggle.getAttribute("aria-pressed") !== "true") return;
  if (main.contains(document.activeElement) && document.activeElement !== main) return; // somebody works in it
  if (!document.getSelection().isCollapsed) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) return;
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    const across = [...main.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    main.replaceChildren(...found.querySelector("main").children);
    main.querySelectorAll(".scroll").forEach((each, at) => (each.scrollLeft = across[at] ?? 0));
    document.querySelector("footer").replaceWith(found.querySelector("footer"));
  } catch {
    // the server is away: the last state stays, with its time
  }
}

if (document.querySelector("main[data-refreshed]")) {
  const toggle = Object.assign(document.createElement("button"), { id: "live", type: "button", textContent: "Live" });
  toggle.title = `Shows it anew every ${SECONDS} seconds`;
  toggle.setAttribute("aria-pressed", "true");
  toggle.addEventListener("click", () =>
    toggle.setAttribute("aria-pressed", String(toggle.getAttribute("aria-pressed") !== "true"))
  );
  document.querySelector("header").append(toggle);
  setInterval(refresh, SECONDS * 1000);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form?.requestSubmit();
});

document.addEventListener("submit", (event) => {
  document.body.setAttribute("aria-busy", "true");
  const button = event.target.querySelector("button");
  if (button) button.textContent += " …";
});
