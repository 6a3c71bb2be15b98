// Runs in the browser once the charts are loaded. Words and numbers come as data and are set as text, never as markup.
const $ = (id) => document.getElementById(id);
const read = (source) => JSON.parse(source.data.json[0]);
const bokeh = t2.document;
let facts_now = {}, opened = null, lost = false, heard = 0;

function make(tag, text, attributes) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  return node;
}
function key_item(kind, shade, text) {
  const item = make("span", null, {class: "item"});
  item.append(make("span", null, {class: "k " + kind, style: "--c: " + shade}), document.createTextNode(text));
  return item;
}
function put(node, text) { if (node.textContent !== text) node.textContent = text; }
const counted = (x) => x === null || x === undefined ? "–" : Math.round(x).toLocaleString("en-US");
function short(x) {
  if (x === null || x === undefined || !isFinite(x)) return "–";
  const size = Math.abs(x);
  const text = size !== 0 && (size >= 1e6 || size < 1e-3) ? size.toExponential(2) : size.toLocaleString("en-US", {maximumSignificantDigits: 4});
  return (x < 0 ? "−" : "") + text.replace("e-", "e−").replace("e+", "e");
}
function bytes(x) { return x === null || x === undefined ? "–" : x >= 1e9 ? (x / 1e9).toFixed(2) + " GB" : (x / 1e6).toFixed(0) + " MB"; }
function duration(x) {
  if (x < 90) return Math.round(x) + " s";
  return x < 5400 ? Math.round(x / 60) + " min" : x < 172800 ? (x / 3600).toFixed(1) + " h" : (x / 86400).toFixed(1) + " days";
}
function empty(id, is) { $(id).closest("section").classList.toggle("empty", is); }
const live = (f) => ["running", "watching"].includes(f.status);
function fact(id, text, value, more) {
  const node = $(id);
  if (node.dataset.text === text + "|" + (more || "")) return;
  node.dataset.text = text + "|" + (more || "");
  node.textContent = text;
  if (value !== undefined && value !== null) node.dataset.value = value;
  if (more) node.append(make("small", more));
}

// Numbers

const STATES = {running: "Learning", watching: "Watching the file", finished: "Finished", stopped: "Stopped", failed: "Failed"};
function show_status() {
  const f = facts_now, lamp = $("lamp");
  let text = STATES[f.status] || f.status || "", kind = f.status;
  const quiet = (performance.now() - heard) / 1000 + (f.age || 0);
  if (f.status === "running" && !f.samples) text = "Waiting for the first rows";
  else if (f.status === "running" && quiet > 15) text = "Learning; nothing new for " + duration(quiet);
  else if (f.status === "running" && f.seconds >= 60) text = "Learning for " + duration(f.seconds);
  else if (f.status !== "running" && f.status !== "watching" && f.seconds >= 1) text += " after " + duration(f.seconds);
  if (f.saved_page) { text = "Saved " + f.saved_page + ", " + text.toLowerCase() + " then"; kind = "finished"; }
  else if (lost) { text = f.status === "running" ? "The connection is lost: these are the last numbers" : text + "; the server has ended"; kind = f.status === "running" ? "lost" : f.status; }
  else if (paused()) { text = "Paused: " + text.toLowerCase() + " goes on behind this page"; kind = "paused"; }
  put($("state"), text);
  lamp.className = kind || "";
}
function show_facts() {
  const f = read(facts);
  f.saved_page = document.body.dataset.saved || null;
  facts_now = f;
  put($("title"), f.title);
  const done = f.total && live(f) ? Math.floor(100 * Math.min(1, f.row / f.total)) + " % · " : "";
  document.title = (f.monitored && f.alarms ? "⚠ " + counted(f.alarms) + " · " : "") + done + f.title;
  const of = f.total ? "of " + counted(f.total) : f.row !== f.samples && f.samples !== undefined ? "row " + counted(f.row) : "";
  fact("f-samples", counted(f.samples), f.samples, of);
  const left = f.total && f.rate > 0 && f.status === "running" ? (f.total - f.row) / f.rate : 0;
  fact("f-rate", short_rate(live(f) ? f.rate : f.mean_rate), f.rate, left >= 1 ? "about " + duration(left) + " left" : !live(f) && f.mean_rate ? "on average" : "");
  const explained = f.explained === undefined || f.explained === null ? "–" : (100 * f.explained).toFixed(2) + " %";
  fact("f-explained", explained, f.explained);
  fact("f-components", counted(f.components), f.components, f.features === undefined ? "" : "of " + counted(f.features) + (f.features === 1 ? " feature" : " features"));
  fact("f-noise", short(f.noise), f.noise);
  const judged = f.judged === null ? "" : f.judged ? "of " + counted(f.judged) + " sampled" : "";
  fact("f-outliers", f.judged === 0 ? "–" : counted(f.outliers), f.outliers, f.monitored && f.outliers && f.samples ? (100 * f.outliers / f.samples).toFixed(2) + " % of rows" : judged);
  fact("f-alarms", f.monitored ? counted(f.alarms) : "–", f.alarms, f.monitored ? "" : "no monitor");
  fact("f-memory", bytes(f.memory), f.memory);
  heard = performance.now();
  show_age();
  const share = f.total ? Math.min(1, f.row / f.total) : 0;
  $("progress").hidden = !f.total;
  $("bar").style.width = (100 * share).toFixed(1) + "%";
  $("note").hidden = !f.note;
  put($("note"), f.note || "");
  show_status();
  show_words(f);
  show_table(f);
}

function show_age() {
  const f = facts_now, moves = live(f) && !f.saved_page && !paused(), ago = f.saved + (f.age || 0) + (moves ? (performance.now() - heard) / 1000 : 0);
  fact("f-saved", typeof f.saved !== "number" ? "–" : ago < 1 ? "just now" : duration(ago) + " ago");
}
setInterval(() => { show_age(); show_status(); }, 1000);
function short_rate(x) { return x === null || x === undefined ? "–" : x >= 100 ? counted(x) : short(x); }

function show_words(f) {
  const n = f.newest, scored = n.row !== undefined, full = f.components >= f.features, flat = f.samples > 0 && !(f.explained > 0);
  let words;
  if (!scored) words = flat ? "No row is scored: all rows are equal so far." : f.status === "watching" || f.status === "finished" ? "The model has no scores of rows." :
    "No row is scored yet. That begins after 20 rows, or five for each component.";
  else words = "Row " + counted(n.row) + ", the newest scored: T² " + short(n.t2) + " (limit " + short(n.t2_limit) + ")" + (full ? "" : ", SPE " + short(n.spe) + " (limit " + short(n.spe_limit) + ")") + ". " +
    (f.afterwards ? "The rows that the file keeps are scored, by the model that has learned them." : f.monitored ? "Every row is scored before it is learned." : "A sample of the rows is scored, each before the model shown has learned it.") +
    (f.holes && !f.monitored ? " Rows with missing values are not." : "") +
    (f.uncharted ? " " + counted(f.uncharted) + " rows came too fast to be charted." : "") +
    (f.monitored ? "" : " Drift is not looked for: psp fit … --monitor alarms.csv, or a Monitor, does that.");
  put($("w-scores"), words);
  empty("w-scores", !scored);
  $("h-scores").closest("section").classList.toggle("wide", !f.monitored);
  $("h-alarms").closest("section").hidden = !f.monitored;
  put($("w-spe"), full ? "Nothing: there are as many components as features." : "");
  $("w-spe").hidden = !full;
  $("w-spe").nextElementSibling.hidden = full;
  put($("w-alarms"), f.alarms === 0 ? "None so far." : f.alarms > f.listed ? "The newest " + counted(f.listed) + " of " + counted(f.alarms) + "; open one for its row and features." : "Open one for its row and features.");
  put($("w-explained"), f.explained === undefined || f.explained === null ? "No rows yet." : (100 * f.explained).toFixed(2) + " % now" +
    (f.half === null || f.half === undefined ? "" : ", " + f.half.toFixed(2) + " % at half the rows") + (f.exact ? ". So far the model is exact: it equals PCA of all these rows." : "."));
  empty("w-explained", f.explained === undefined);
  put($("w-scree"), flat ? "All variances are zero." : f.noise === undefined ? "" : "Noise level " + short(f.noise) + ": the mean variance along the directions left out.");
  put($("w-variances"), f.samples === undefined ? "No rows yet." : flat ? "All variances are zero." : "");
  empty("w-variances", f.samples === undefined);
  for (const id of ["w-scree", "w-variances"]) $(id).nextElementSibling.classList.toggle("lone", flat);
  const count = rows.data.row ? rows.data.row.length : 0;
  put($("w-plane"), count ? counted(count) + " of the rows " + counted(rows.data.row[0]) + " to " + counted(rows.data.row[count - 1]) + (f.holes ? "; missing values are filled in." : ".") :
    f.status === "watching" || f.status === "finished" ? "The model has no rows with it." : "No rows yet.");
  empty("w-plane", !count);
}
function show_table(f) {
  const body = $("t-scree").tBodies[0], ratios = f.ratios || [];
  while (body.rows.length > ratios.length) body.deleteRow(-1);
  let together = 0;
  ratios.forEach((ratio, i) => {
    together += ratio || 0;
    const line = body.rows[i] || body.insertRow();
    while (line.cells.length < 3) line.insertCell();
    put(line.cells[0], String(i + 1));
    put(line.cells[1], (100 * (ratio || 0)).toFixed(3) + " %");
    put(line.cells[2], (100 * together).toFixed(2) + " %");
  });
}

// Components

function pace() {
  const every = live(facts_now) ? facts_now.every : 0;
  return every > 2 ? " This model is large: it is copied about every " + duration(every) + ", so that learning is not slowed." : "";
}
const SHADES = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C6D1F", "#8A8A8A"];
function show_components() {
  const told = read(components), list = $("components"), images = told.components.some((each) => each.image);
  list.className = images ? "images" : "";
  const some = told.components.length < facts_now.components ? "The first " + told.components.length + " of " + counted(facts_now.components) + ". " : "";
  put($("w-components"), !told.components.length ? "None yet." : some + (images ? "Blue is negative, white is zero, vermilion is positive." : "The features with the largest loadings, and the share of the variance.") + pace());
  while (list.children.length > told.components.length) list.lastChild.remove();
  told.components.forEach((each, i) => {
    if (!list.children[i]) list.append(make("li"));
    const share = each.share === null ? "" : each.share.toFixed(2) + " %";
    if (images) show_picture(list.children[i], each, share); else show_loadings(list.children[i], each, share);
  });
  const legend = $("k-variances");
  const count = Math.min(8, told.components.length);
  if (legend.dataset.count !== String(count)) {
    legend.dataset.count = count;
    legend.replaceChildren();
    for (let k = 0; k < count; k++) legend.append(key_item(k < 4 ? "line" : "dots", SHADES[k], String(k + 1)));
    legend.append(key_item("dash", "#8A8A8A", "noise level"));
  }
  show_legend(told.legends);
}
function show_picture(item, each, share) {
  let image = item.querySelector("img");
  if (!image) {
    item.replaceChildren(make("figure"));
    const caption = make("figcaption");
    image = make("img");
    caption.append(make("b"), make("span"));
    item.firstChild.append(image, caption);
  }
  if (image.src !== each.image && each.image.startsWith("data:image/png;base64,")) image.src = each.image;
  image.alt = "Component " + each.number + " as a picture";
  put(item.querySelector("b"), String(each.number));
  put(item.querySelector("span"), share);
}
function show_loadings(item, each, share) {
  if (!item.querySelector("h3")) {
    const head = make("h3");
    head.append(document.createTextNode("Component " + each.number), make("span"));
    item.replaceChildren(head);
  }
  put(item.querySelector("h3 span"), share);
  const most = Math.max(...each.loadings.map((one) => Math.abs(one.value)), 1e-300);
  while (item.children.length - 1 > each.loadings.length) item.lastChild.remove();
  each.loadings.forEach((one, i) => {
    let line = item.children[i + 1];
    if (!line) {
      line = make("div", null, {class: "load"});
      const bar = make("span", null, {class: "how", "aria-hidden": "true"});
      bar.append(make("i"));
      line.append(make("span", null, {class: "who"}), bar, make("span", null, {class: "what"}));
      item.append(line);
    }
    put(line.children[0], one.name);
    line.children[0].title = one.name;
    const size = 50 * Math.abs(one.value) / most, bar = line.children[1].firstChild;
    bar.style.cssText = "width: " + size + "%; background: " + (one.value < 0 ? "#0072B2" : "#D55E00") + "; " + (one.value < 0 ? "right: 50%" : "left: 50%");
    put(line.children[2], (one.value < 0 ? "−" : "") + Math.abs(one.value).toFixed(3));
  });
}

// Alarms

function show_alarms() {
  const told = read(alarms), list = $("alarms");
  const signature = told.map((each) => each.number).join();
  if (list.dataset.signature === signature) return;
  list.dataset.signature = signature;
  list.replaceChildren();
  told.slice().reverse().forEach((each) => {
    const button = make("button", each.title, {type: "button", "aria-expanded": "false", "data-number": each.number, "aria-controls": "detail"});
    button.addEventListener("click", () => open_alarm(opened === each.number ? null : each.number, true));
    const item = make("li");
    item.append(button);
    list.append(item);
  });
  if (opened !== null) open_alarm(opened, false);
}
function open_alarm(number, focus) {
  const each = number === null ? undefined : read(alarms).find((one) => one.number === number), detail = $("detail");
  opened = each ? number : null;
  for (const button of $("alarms").querySelectorAll("button")) button.setAttribute("aria-expanded", String(button.dataset.number === String(opened)));
  detail.hidden = !each;
  detail.replaceChildren();
  if (!each) return;
  detail.append(make("h3", each.title), make("p", each.found, {class: "words"}));
  if (each.label) detail.append(make("p", "Raised by " + each.label + ".", {class: "words"}));
  if (each.shares) detail.append(make("p", "What has changed most: " + each.shares + ".", {class: "words"}));
  if (!each.features) return;
  const s = each.scores;
  detail.append(make("p", "An alarm comes from many rows together; this is the one at which it was raised. T² " + short(s.t2) + " (limit " + short(s.t2_limit) + "), SPE " + short(s.spe) + " (limit " + short(s.spe_limit) + ").", {class: "words"}));
  if (each.pictures) {
    const shots = make("div", null, {class: "shots"});
    for (const picture of each.pictures) {
      if (!picture.image.startsWith("data:image/png;base64,")) continue;
      const figure = make("figure");
      figure.append(make("img", null, {src: picture.image, alt: picture.name}), make("figcaption", picture.name));
      shots.append(figure);
    }
    detail.append(shots);
  }
  const table = make("table"), head = make("tr"), body = make("tbody");
  for (const name of ["Feature", "Value", "adds to SPE", "adds to T²"]) head.append(make("th", name, {scope: "col"}));
  const most = {spe: Math.max(...each.features.map((one) => Math.abs(one.spe || 0)), 1e-300), t2: Math.max(...each.features.map((one) => Math.abs(one.t2 || 0)), 1e-300)};
  for (const one of each.features) {
    const line = make("tr");
    const name = make("td");
    name.append(make("span", one.name, {class: "name", title: one.name}));
    line.append(name, make("td", short(one.value)), metered(one.spe, most.spe, "#D55E00"), metered(one.t2, most.t2, "#0072B2"));
    body.append(line);
  }
  const top = make("thead");
  top.append(head);
  table.append(top, body);
  detail.append(table);
  if (focus) detail.focus({preventScroll: false});
}
function metered(value, most, colour) {
  const cell = make("td", short(value));
  cell.append(make("span", null, {class: value < 0 ? "meter less" : "meter", style: "width: " + (100 * Math.abs(value || 0) / most).toFixed(1) + "%; --c: " + colour}));
  return cell;
}

// Choices

const x = $("x"), y = $("y"), axes = $("axes"), colour = $("colour");
function fill_choices() {
  const count = Math.max(1, Math.min(10, facts_now.components || 1)), row = make("option", "row number", {value: "row"});
  let changed = false;
  for (const [select, first] of [[x, count > 1 ? "1" : "row"], [y, count > 1 ? "2" : "1"]]) {
    if (select.options.length === count + (select === x)) continue;
    const kept = select.dataset.chosen || first;
    select.replaceChildren();
    for (let k = 1; k <= count; k++) select.append(make("option", "axis " + k, {value: String(k)}));
    if (select === x) select.append(row);
    select.value = Number(kept) > count ? first : kept;
    changed = true;
  }
  const ids = facts_now.ids || [];
  while (colour.options.length > 2 + ids.length) colour.lastChild.remove();
  ids.forEach((name, i) => {
    if (!colour.options[2 + i]) colour.append(make("option", null, {value: "id" + i}));
    put(colour.options[2 + i], name);
  });
  if (changed) choose();
}
function choose() {
  points.glyph.x = {field: x.value === "row" ? "row" : axes.value + x.value};
  points.glyph.y = {field: axes.value + y.value};
  plane.below[0].axis_label = x.value === "row" ? "row" : (axes.value === "s" ? "stable axis " : "component ") + x.value;
  plane.left[0].axis_label = (axes.value === "s" ? "stable axis " : "component ") + y.value;
  if (colour.value.startsWith("id")) points.glyph.fill_color = {field: "colour" + colour.value.slice(2)};
  else points.glyph.fill_color = {field: colour.value, transform: colour.value === "spe" ? by_spe : by_row};
  show_legend(read(components).legends);
}
function show_legend(legends) {
  const key = $("k-plane"), ids = facts_now.ids || [];
  key.replaceChildren();
  if (colour.value.startsWith("id")) {
    for (const [text, shade] of (legends || {})[ids[Number(colour.value.slice(2))]] || []) key.append(key_item("dot", shade, text.trim() || "(empty)"));
  } else {
    const ends = colour.value === "row" ? ["older", "newer"] : ["small SPE", "large SPE"];
    key.append(document.createTextNode(ends[0]), make("span", null, {class: "k ramp"}), document.createTextNode(ends[1]));
  }
}
function choose_window() {
  const wanted = $("window").value;
  $("k-scores").classList.toggle("newest", wanted === "newest");
  for (const chart of [t2, spe]) for (const renderer of chart.renderers) {
    if (renderer.tags.length) renderer.visible = renderer.tags.includes(wanted);
  }
}
for (const select of [x, y, axes, colour]) select.addEventListener("change", () => { select.dataset.chosen = select.value; choose(); });
$("window").addEventListener("change", choose_window);

// Pausing and saving

function paused() { return answers.data.paused[0] === 1; }
function answer(change) { answers.data = {version: [facts_now.version], paused: answers.data.paused, ...change}; }
$("pause").addEventListener("click", () => {
  const now = !paused();
  answer({paused: [now ? 1 : 0]});
  $("pause").setAttribute("aria-pressed", String(now));
  put($("pause"), now ? "Resume" : "Pause");
  show_status();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || facts_now.saved_page) return;
  if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
  if (event.key === "p") $("pause").click();
  if (event.key === "s") $("save").click();
  if (event.key === "Escape" && opened !== null) { const number = opened; open_alarm(null); const button = document.querySelector('#alarms button[data-number="' + number + '"]'); if (button) button.focus(); }
});
$("save").addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); $("save").click(); } });

// Listening

function on_data(source, action) { source.properties.data.change.connect(action); }
on_data(facts, () => {
  show_facts();
  fill_choices();
  if (facts_now.closing) bokeh.config.setv({reconnect_session: false}, {sync: false});
  if (!facts_now.saved_page) answer({});
});
on_data(components, show_components);
on_data(alarms, show_alarms);
marks.selected.properties.indices.change.connect(() => {
  const at = marks.selected.indices[0];
  if (at !== undefined) open_alarm(marks.data.row[at], true);
});
bokeh.on_event("connection_lost", () => { lost = true; show_status(); });
bokeh.on_event("client_reconnected", () => { lost = false; show_status(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const root of bokeh.roots()) { const view = Bokeh.index.find_one(root); if (view) view.request_repaint(); }
});
if (session_id) $("save").href = "save?session=" + encodeURIComponent(session_id);
show_facts();
fill_choices();
show_components();
show_alarms();
choose();
choose_window();
put($("about"), "online-psp. " + (facts_now.saved_page ? "This file needs no server." : "This page only looks: nothing here changes the model. Keys: p pauses, s saves, Esc closes an alarm."));
if (!facts_now.saved_page) answer({});  // acknowledge the data that the page was loaded with
document.body.dataset.ready = "yes";
