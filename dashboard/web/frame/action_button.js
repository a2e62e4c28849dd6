// One button with the fields before it. A press posts to the HTTP API what `data.posts` says, one
// after the other, and tells the page what came of it; without posts it tells of the press alone.
// `data.file` answers a press by a file. All texts are data: they are set as text, never as HTML.
const forms = new WeakMap();
const ADDRESS_MS = 60_000; // a browser may take that long to begin saving

function element(name, attributes = {}, ...children) {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
}

function inputOf(field) {
  if (field.kind === "select") {
    const options = field.options.map(([value, text]) => element("option", { value }, text));
    return element("select", { name: field.name }, ...options);
  }
  const kind = field.kind === "tick" ? "checkbox" : "text";
  const needed = field.name === "by" ? { required: true, pattern: ".*\\S.*" } : {};
  return element("input", {
    name: field.name, type: kind, placeholder: field.placeholder, autocomplete: "off", ...needed,
  });
}

function rowOf(field) {
  if (field.kind === "radio") {
    const choices = field.options.map(([value, text]) => {
      const checked = value === field.choice;
      const input = element("input", { type: "radio", name: field.name, value, checked });
      return element("label", {}, input, text);
    });
    return element("fieldset", {}, element("legend", {}, field.label), ...choices);
  }
  const input = inputOf(field);
  const row = field.kind === "tick" ? [input, field.label] : [field.label, input];
  return element("label", { className: field.kind }, ...row);
}

function given(form, fields) {
  const values = { body: {}, by: null };
  for (const field of fields) {
    if (field.kind === "tick") continue;
    const value = form.elements[field.name].value.trim();
    if (field.name === "by") values.by = value;
    else if (value) values.body[field.name] = value;
  }
  return values;
}

async function send(post, data, values, nonce) {
  const headers = {
    "Content-Type": "application/json",
    "Idempotency-Key": `${nonce}-${post.name}`,
  };
  const by = values.by ?? data.by;
  if (by) headers["X-Trimtab-By"] = encodeURIComponent(by);
  const body = post.body === null ? undefined : JSON.stringify({ ...post.body, ...values.body });
  // What was sent is carried out, also where the tab is closed at once.
  const request = { method: post.method, headers, body, keepalive: true };
  let answer;
  for (let tries = 0; tries < 5; tries += 1) {
    try {
      answer = await fetch(new URL(post.path, new URL(".", document.baseURI)), request);
    } catch {
      return "the server did not answer: look at what became of it before you ask again";
    }
    if (answer.status !== 429) break;
    const seconds = Number(answer.headers.get("Retry-After") ?? 1);
    await new Promise((resume) => setTimeout(resume, 1000 * seconds));
  }
  if (answer.ok) {
    const next = answer.headers.get("X-Trimtab-Next"); // where signing in or out goes on
    if (next) location.assign(next);
    return "";
  }
  const told = await answer.json().catch(() => ({ detail: `it was refused (${answer.status})` }));
  return [told.detail, told.hint].filter(Boolean).join(". ");
}

function save(file) {
  const content = Uint8Array.from(atob(file.base64), (letter) => letter.charCodeAt(0));
  const address = URL.createObjectURL(new Blob([content], { type: file.type }));
  element("a", { href: address, download: file.name }).click();
  setTimeout(() => URL.revokeObjectURL(address), ADDRESS_MS);
}

function build(parent, held) {
  const form = parent.querySelector("form");
  const button = form.querySelector("button");
  const settle = () => {
    const ticks = [...form.querySelectorAll("input[type=checkbox]")];
    button.disabled = held.busy || held.data.disabled || ticks.some((tick) => !tick.checked);
  };
  form.addEventListener("change", settle);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (held.busy) return;
    held.busy = true;
    settle();
    const nonce = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    const values = given(form, held.data.fields);
    const refused = [];
    for (const post of held.data.posts) {
      const why = await send(post, held.data, values, nonce);
      if (why) refused.push(`${post.name}: ${why}`);
    }
    held.busy = false;
    settle();
    held.pressed = nonce;
    const done = held.data.posts.length - refused.length;
    held.tell("answers", { nonce, done, refused, by: values.by ?? held.data.by });
  });
  return { form, button, settle };
}

export default function ({ data, parentElement, setStateValue }) {
  let held = forms.get(parentElement);
  if (!held) {
    held = { busy: false, drawn: null, saved: null };
    forms.set(parentElement, held);
    held.data = data;
    Object.assign(held, build(parentElement, held));
  }
  held.data = data;
  held.tell = setStateValue;
  const wanted = JSON.stringify(data.fields);
  if (held.drawn !== wanted) {
    held.drawn = wanted;
    held.form.querySelector(".fields").replaceChildren(...data.fields.map(rowOf));
  }
  held.button.textContent = data.label;
  held.button.title = data.help;
  held.button.className = data.primary ? "primary" : "";
  held.settle();
  if (data.file && data.file.nonce === held.pressed && held.saved !== data.file.nonce) {
    held.saved = data.file.nonce;
    save(data.file);
  }
}
