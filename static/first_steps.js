// Copies commands of the first steps. The page works without this file: select the text instead.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copies]");
  if (!button) return;
  const text = button.parentElement.querySelector("pre");
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text); // no permission, or no HTTPS: Ctrl+C copies
    button.textContent = "Selected";
  }
});
