// The boxes of a page as a tree, and the elements that reach beyond its right edge.
() => {
  if (!document.adoptedStyleSheets.length) {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(
      "[data-blank] *, [data-blank] *::before, [data-blank] *::after, [data-blank] ::placeholder {"
      + "-webkit-text-fill-color: transparent !important;"
      + "text-decoration-color: transparent !important }"
    );
    document.adoptedStyleSheets = [sheet];
  }
  const round = number => Math.round(number * 10) / 10;
  const own = element => [...element.childNodes]
    .filter(node => node.nodeType === 3).map(node => node.data).join(" ").replace(/\s+/g, " ").trim();
  const border = (style, side) => style[`border${side}Style`] === "none" ? "none"
    : style[`border${side}Width`] + " " + style[`border${side}Color`];
  const beyond = [];
  const walk = (element, clipped) => {
    const style = getComputedStyle(element);
    if (style.display === "none" || style.visibility === "hidden") return [];
    const inside = () => [...element.children].flatMap(
      child => walk(child, clipped || style.overflowX !== "visible"));
    if (style.display === "contents") return inside();
    const box = element.getBoundingClientRect();
    const isHidden = element.classList.contains("visually-hidden") || element.classList.contains("away")
      || element.classList.contains("skip")
      || element.classList.contains("sprite") || (box.width <= 1 && box.height <= 1);
    if (isHidden) return [];
    if (!clipped && box.right > innerWidth + 1) beyond.push(element.tagName.toLowerCase() + "." + element.className);
    return [{
      tag: element.tagName.toLowerCase(),
      kind: element.getAttribute("role") || element.getAttribute("type") || "",
      class: element.getAttribute("class") || "",
      id: element.id,
      text: own(element),
      x: round(box.x + scrollX), y: round(box.y + scrollY), w: round(box.width), h: round(box.height),
      display: style.display,
      float: ["absolute", "fixed", "sticky"].includes(style.position),
      style: [style.color, style.backgroundColor, border(style, "Top"), border(style, "Left"),
        border(style, "Bottom"), style.fontSize, style.fontWeight, style.fontFamily.split(",")[0],
        style.whiteSpace].join("|"),
      children: element instanceof SVGElement ? [] : inside(),
    }];
  };
  const tree = walk(document.body, false);
  return {
    width: innerWidth,
    height: document.documentElement.scrollHeight,
    overflow: document.documentElement.scrollWidth - innerWidth,
    beyond: beyond.slice(0, 12),
    tree: tree[0],
  };
}
