// Names from recordings can contain anything. They reach the page as text, never as markup. This file makes control and
// direction characters visible and shortens long names (the details view shows the full name).

const NEWLINES = /\r\n|\r|\n/g;
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f]/g;
const HIDDEN = /[\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Maximum number of characters of a name to process when it is shown in one line. */
export const SHOWN = 240;

/** One line with all characters made visible. */
export function visible(text: string): string {
  return text
    .replace(NEWLINES, "⏎")
    .replace(CONTROLS, (character) => String.fromCharCode(0x2400 + character.charCodeAt(0)))
    .replace(HIDDEN, (character) => `‹U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

export function shorten(text: string, most = SHOWN): string {
  if (text.length <= most) return visible(text);
  return `${visible(text.slice(0, most - 1))}…`;
}

/** The end of a path matters most: `…/gpt2/modeling_gpt2.py:282 forward`. */
export function shortenStart(text: string, most: number): string {
  if (text.length <= most) return visible(text);
  return `…${visible(text.slice(text.length - most + 1))}`;
}

/** The text shortened in the middle to `width` pixels of a canvas; "" if nothing useful fits. */
export function fit(context: CanvasRenderingContext2D, text: string, width: number): string {
  const whole = shorten(text, 160);
  if (width < 18) return "";
  if (context.measureText(whole).width <= width) return whole;
  let low = 0;
  let high = whole.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`…${whole.slice(whole.length - middle)}`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : `…${whole.slice(whole.length - low)}`;
}

/** A place in one line: outer directories are left out until it fits. */
export function shortPlace(text: string, most: number): string {
  let rest = text;
  while (rest.length > most) {
    const cut = rest.indexOf("/", 1);
    if (cut < 0 || cut > rest.lastIndexOf(" ") + rest.length) break;
    rest = rest.slice(cut + 1);
  }
  return shorten(rest, Math.max(most, 12));
}
