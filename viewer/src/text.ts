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

/**
 * A place from long to short: outer directories are left out first, then the namespace of the function. The file, the line
 * and the function remain: `models/gpt2/modeling_gpt2.py:305 forward`, `modeling_gpt2.py:305 forward`.
 */
export function placeForms(text: string): string[] {
  const whole = shorten(text, SHOWN);
  const found = /^(\S*\/)?([^/\s]+:\d+) (.+)$/.exec(whole);
  if (found === null) return [whole];
  const [, directories = "", place = "", name = ""] = found;
  const forms: string[] = [];
  const parts = directories.split("/");
  for (let first = 0; first < parts.length; first += 1) forms.push(`${parts.slice(first).join("/")}${place} ${name}`);
  const last = name.slice(name.lastIndexOf("::") + 2);
  if (name.includes("::") && !/[<>]/.test(last) && last !== "") forms.push(`${place} ${last}`);
  return forms;
}

/** A place in at most `most` characters. */
export function shortPlace(text: string, most: number): string {
  const forms = placeForms(text);
  return forms.find((form) => form.length <= most) ?? shorten(forms[forms.length - 1] ?? "", most);
}

/** A place in `width` pixels of a canvas: the longest form that fits, else the start of the function; "" if that is too short. */
export function fit(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (width < 18) return "";
  const forms = placeForms(text);
  const shortest = forms[forms.length - 1] ?? "";
  const name = /^[^/\s]+:\d+ (.+)$/.exec(shortest)?.[1] ?? shortest;
  const found = [...forms, name].find((form) => context.measureText(form).width <= width);
  if (found !== undefined) return found;
  let low = 0;
  let high = name.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${name.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : `${name.slice(0, low)}…`;
}

/** A command and the remark that may follow it: `nvcc -g …   (or -G)`. Only the command can be copied. */
export function commandParts(text: string): { command: string; remark: string | null } {
  const at = text.search(/ {3}\(/);
  return at < 0 ? { command: text, remark: null } : { command: text.slice(0, at), remark: text.slice(at).trim() };
}

/** A command of makeroom about this recording, with its name if that needs no quoting. */
export function commandFor(command: string, file: string): string {
  if (!/^[\w][\w.+-]*$/.test(file)) return command;
  return command.replace(/^(makeroom (?:why|tune|replay)\b.*) …$/, (_, known: string) => `${known} ${file}`);
}

/** Where a command may break, besides its spaces: after the characters that end a word of it. */
export function commandPieces(command: string): string[] {
  return command.split(/(?<=[=,:;/(|&.](?=\w))/);
}

/** Whether a place is a line, a function or an address; a thread is none. */
export function isThread(place: string): boolean {
  return place.startsWith("thread ");
}

/** The name of a file without the extensions that say only its kind. */
export function stem(name: string): string {
  return name.replace(/(?<=.)(\.(gz|zst|pickle|pkl|json|room|csv|log|txt))+$/i, "");
}
