"use strict";

// Nodes of a page; text is never parsed as HTML.

const at = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
function make(tag, attributes = {}, ...children) {
  const svg = /^(svg|g|path|line|rect|circle|text|title|polygon)$/.test(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("aria-") && value != null) {
      node.setAttribute(name, `${value}`);
      continue;
    }
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}
// Replaces the content of a node and keeps the focus where it was.
function fill(node, ...children) {
  const focused = document.activeElement;
  const held = focused !== node && node.contains(focused);
  const name = one => one.dataset.key || one.getAttribute("aria-label") || one.textContent;
  const alike = held && (one => one.tagName === focused.tagName && name(one) === name(focused));
  const same = () => [...node.querySelectorAll(focused.tagName)].filter(alike);
  const place = held && same().indexOf(focused);
  node.replaceChildren(...children.filter(child => child != null));
  if (held) same()[place]?.focus({ preventScroll: true });
}
