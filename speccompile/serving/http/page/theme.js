// The chosen theme, before anything is drawn: a module would come after the first frame.
try {
  const theme = localStorage.getItem("speccompile:theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // storage is blocked: the system's theme it is
}
