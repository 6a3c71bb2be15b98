// The page: words and numbers come as data and are set as text, never as markup.

const $ = (id) => document.getElementById(id)
const source = document.documentElement.cloneNode(true)  // before anything is filled in: what a saved page begins from
let {version, saved, data} = JSON.parse($("data").textContent, revived)
let raw = JSON.stringify(JSON.parse($("data").textContent).data)
let paused = false, lost = false, heard = performance.now(), opened = null, pictured = ""

function make(tag, text, attributes, ...inside) {
  const node = document.createElement(tag)
  if (text !== null && text !== undefined) node.textContent = text
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value)
  node.append(...inside)
  return node
}
const put = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text }
const percent = (share, digits) => share === null || share === undefined ? "–" : (100 * share).toFixed(digits) + " %"
const plural = (count, word) => whole(count) + " " + word + (count === 1 ? "" : "s")
const last = (values) => values[values.length - 1]
function duration(x) {
  if (x < 90) return Math.round(x) + " s"
  return x < 5400 ? Math.round(x / 60) + " min" : x < 172800 ? (x / 3600).toFixed(1) + " h" : (x / 86400).toFixed(1) + " days"
}
function key(id, items) {
  $(id).replaceChildren(...items.map(([kind, shade, text]) => make("span", null, {class: "item"}, make("span", null, {class: "k " + kind, style: "--c: " + shade}), text)))
}
const section = (id) => $(id).closest("section").classList
const live = () => ["running", "watching"].includes(data.status)
const clocked = () => data.clock !== ""
const x_axis = () => clocked() ? {kind: data.clock, label: data.clock === "date" ? "" : "time (s)"} : {kind: "rows", label: "row"}
const place = (table) => table[clocked() ? 1 : 0]
const when = (table, i) => [["row", whole(table[0][i])], ...(clocked() ? [["time", data.clock === "date" ? moment(table[1][i]) : short(table[1][i])]] : [])]

// Numbers

const STATES = {running: "Learning", watching: "Watching the file", finished: "Finished", stopped: "Stopped", failed: "Failed"}
function show_status() {
  const quiet = (performance.now() - heard) / 1000
  let text = STATES[data.status], kind = data.status
  if (data.status === "running") text = !data.model ? "Waiting for the first rows" : quiet > 15 + 2 * data.pause ? "Learning; nothing new for " + duration(quiet) : data.seconds >= 60 ? "Learning for " + duration(data.seconds) : text
  else if (data.status !== "watching" && data.seconds >= 1) text += " after " + duration(data.seconds)
  if (saved) { text = "Saved " + saved + ", " + text.toLowerCase() + " then"; kind = "finished" }
  else if (lost && live()) { text = "Connection lost; these are the last numbers"; kind = "lost" }
  else if (paused) { text = "Paused; the fit goes on"; kind = "paused" }
  put("state", text)
  $("lamp").className = kind
  const age = data.saved === null ? null : data.saved + (live() && !saved && !paused ? quiet : 0)
  fact("saved", age === null ? "–" : age < 1 ? "just now" : duration(age) + " ago", data.saved)
}
function fact(name, text, value, more) {
  const node = $("f-" + name)
  if (node.dataset.text === text + more) return
  node.dataset.text = text + more
  node.dataset.value = value
  node.replaceChildren(text, ...(more ? [make("small", more)] : []))
}
function show_facts() {
  const m = data.model || {}, share = data.scored ? data.outliers / data.scored : 0, rate = data.status === "running" ? data.rate : data.seconds ? m.samples / data.seconds : null
  put("title", data.title)
  document.title = (data.alarmed ? "⚠ " + whole(data.alarmed) + " · " : "") + (data.total && live() ? Math.floor(100 * data.row / data.total) + " % · " : "") + data.title
  fact("samples", whole(m.samples), m.samples, data.total ? "of " + whole(data.total) : data.row > m.samples ? "row " + whole(data.row) : "")
  const left = data.total && data.rate > 0 && data.status === "running" ? (data.total - data.row) / data.rate : 0
  fact("rate", rate > 0 ? (rate < 100 ? short(rate) : whole(rate)) : "–", rate, left >= 1 ? "about " + duration(left) + " left" : live() || !rate ? "" : "on average")
  fact("explained", percent(m.explained, 2), m.explained)
  fact("components", whole(m.components), m.components, m.features ? "of " + plural(m.features, "feature") : "")
  fact("noise", short(m.noise), m.noise)
  fact("outliers", data.scored ? whole(data.outliers) : "–", data.outliers, data.scored ? percent(share, 2) + (data.monitored ? "" : " of a sample") + (heavy() ? "; " + percent(data.alpha, 0) + " if Gaussian" : "") : "")
  fact("alarms", data.monitored ? whole(data.alarmed) : "–", data.alarmed, data.monitored ? "" : "no monitor")
  fact("memory", data.memory ? (data.memory >= 1e9 ? (data.memory / 1e9).toFixed(2) + " GB" : Math.round(data.memory / 1e6) + " MB") : "–", data.memory)
  $("progress").hidden = !data.total
  $("bar").style.width = (data.total ? 100 * Math.min(1, data.row / data.total) : 0).toFixed(1) + "%"
  $("note").hidden = !data.note
  put("note", data.note)
  show_status()
}
const heavy = () => data.scored >= 500 && data.outliers > 2 * data.alpha * data.scored

// Scores

const charts = {t2: new Chart($("c-t2"), 250), spe: new Chart($("c-spe"), 250), plane: new Chart($("c-plane"), 380), explained: new Chart($("c-explained"), 210), scree: new Chart($("c-scree"), 210), variances: new Chart($("c-variances"), 210)}

function show_scores() {
  const n = data.newest, i = n[0].length - 1, scored = data.whole[0].length > 0, full = data.model && data.model.components >= data.model.features, newest = $("window").value === "newest"
  section("h-scores").toggle("empty", !scored)
  section("h-scores").toggle("wide", !data.alarmed)
  put("w-scores", !scored ? (!live() || data.status === "watching" ? "No row has been scored." : "No row is scored yet. That begins after 20 rows, or five for each component.") :
    "Row " + whole(n[0][i]) + ", the newest: T² " + short(n[2][i]) + " (limit " + short(n[6][i]) + ")" + (full ? "" : ", SPE " + short(n[3][i]) + " (limit " + short(n[7][i]) + ")") + ". " +
    (data.afterwards ? "The file keeps its newest rows; the model that learned them scores them." : data.monitored ? "Every row is scored before it is learned." : "A sample of the rows is scored, each before the model shown has learned it.") +
    (heavy() ? " " + percent(data.outliers / data.scored, 1) + " of them are above a limit, where " + percent(data.alpha, 0) + " would be if rows were Gaussian: these have heavier tails" + (data.alarmed ? ", or the stream has changed." : ".") : "") +
    (data.monitored ? "" : " Without a monitor there are no drift alarms: psp fit … --monitor alarms.csv."))
  if (!scored) return
  $("w-spe").hidden = !full
  $("c-spe").hidden = full
  show_score(charts.t2, "T²", newest ? data.newest : data.whole, 0, newest)
  if (!full) show_score(charts.spe, "SPE", newest ? data.newest : data.whole, 1, newest)
  key("k-scores", [...(newest ? [["dot", BLUE, "a row"]] : [["line", BLUE, "typical"], ["band", SKY, "largest"]]), ["dash", GREY, "limit"], ["tri", VERMILION, "above the limit"], ...(data.alarmed ? [["bar", PURPLE, "drift alarm"]] : [])])
}
function show_score(chart, name, table, at, newest) {
  const x = place(table), limit = table[6 + at], raised = (values) => values.map((v, i) => v < 1e-4 * limit[i] ? 1e-4 * limit[i] : v)  // so that a row near the mean does not stretch the axis
  const typical = raised(table[2 + at]), most = raised(table[4 + at]), over = most.map((v, i) => v > limit[i] ? v : NaN)
  chart.show({
    x: x_axis(), y: {label: name, kind: "log"},
    series: [
      ...(newest ? [{kind: "dots", x, y: typical, color: BLUE, size: 3, alpha: 0.6}] : [{kind: "band", x, y: typical, y2: most, color: SKY}, {kind: "line", x, y: typical, color: BLUE}]),
      {kind: "dash", x, y: limit, color: GREY, size: 1.5}, {kind: "triangles", x, y: over, color: VERMILION},
    ],
    tip: {x, y: newest ? most : typical, text: (i) => [...when(table, i), [newest ? name : "typical " + name, short(table[2 + at][i])], ...(newest ? [] : [["largest", short(table[4 + at][i])]]), ["limit", short(limit[i])]]},
    marks: data.alarms.map((each) => clocked() ? each.time : each.number), pick: (i) => open_alarm(data.alarms[i].number, true),
  })
}

// Trends

function show_trends() {
  const m = data.model, table = data.readings, count = table.length ? table[0].length : 0, flat = m && !(m.explained > 0)
  for (const name of ["explained", "variances"]) section("h-" + name).toggle("empty", !m || flat)
  if (!m || flat) { for (const name of ["w-explained", "w-variances"]) put(name, m ? "All variances are zero." : "No rows yet."); return }
  const half = table[2][table[0].findLastIndex((row) => row <= data.row / 2)]
  put("w-explained", percent(m.explained, 2) + " now" + (half === undefined ? "" : ", " + half.toFixed(2) + " % at half the rows") + (m.exact ? ". So far the model is exact: it equals PCA of all these rows." : "."))
  put("w-scree", "Noise level " + short(m.noise) + ": the mean variance along the directions left out." + alike(m))
  const trend = count > 1, x = trend ? place(table) : []
  put("w-variances", trend ? "" : data.status === "watching" ? "One reading so far; trends begin when the file is rewritten." : "One reading so far; trends begin with the next.")
  for (const name of ["c-explained", "c-variances", "k-variances"]) $(name).hidden = !trend
  const shown = SHADES.slice(0, Math.min(m.components, SHADES.length))
  if (trend) {
    const dots = count <= 60
    charts.explained.show({x: x_axis(), y: {label: "% of the variance", kind: "number", least: 0.1}, series: [{kind: "line", x, y: table[2], color: BLUE}, ...(dots ? [{kind: "dots", x, y: table[2], color: BLUE}] : [])],
      tip: {x, y: table[2], text: (i) => [...when(table, i), ["explained", table[2][i].toFixed(2) + " %"]]}})
    charts.variances.show({x: x_axis(), y: {label: "variance", kind: "log"},
      series: [...shown.map((color, k) => ({kind: "line", x, y: table[4 + k], color, size: 1.8})), {kind: "dash", x, y: table[3], color: GREY, size: 1.5}],
      tip: {x, y: table[4], text: (i) => [...when(table, i), ...shown.map((_, k) => ["component " + (k + 1), short(table[4 + k][i])]), ["noise", short(table[3][i])]]}})
    key("k-variances", [...shown.map((shade, k) => ["line", shade, String(k + 1)]), ["dash", GREY, "noise level"]])
  }
  const numbers = m.variances.map((_, i) => i + 1)
  charts.scree.show({x: {kind: "count", label: "component"}, y: {label: "variance", kind: "log"},
    series: [{kind: "dash", x: [0.5, m.variances.length + 0.5], y: [m.noise, m.noise], color: GREY, size: 1.5}, {kind: "line", x: numbers, y: m.variances, color: BLUE}, {kind: "line", x: [...numbers].flatMap((x) => [x, x, NaN]), y: [...m.variances].flatMap((y, i) => [y - m.errors[i], y + m.errors[i], NaN]), color: VERMILION}, {kind: "dots", x: numbers, y: m.variances, color: BLUE, size: 7}],
    tip: {x: numbers, y: m.variances, text: (i) => [["component", String(i + 1)], ["variance", short(m.variances[i]) + " ± " + short(m.errors[i])], ["share", percent(m.ratios[i], 2)]]}})
  key("k-scree", [["line", BLUE, "now"], ["line", VERMILION, "± standard error, for Gaussian rows"], ["dash", GREY, "noise level"]])
  let total = 0
  $("t-scree").tBodies[0].replaceChildren(...m.ratios.map((ratio, i) => make("tr", null, {}, make("td", String(i + 1)), make("td", percent(ratio, 3) + (m.variances[i] > 0 ? " ± " + percent(ratio * m.errors[i] / m.variances[i], 3) : "")), make("td", percent(total += ratio, 2)))))
}

function alike(m) {
  const runs = m.alike.slice(0, 6).map(([first, last]) => first + (last === first + 1 ? " and " : " to ") + last)
  return runs.length ? " Components " + runs.join(", ") + (m.alike.length > runs.length ? ", …" : "") + " are not told apart by " + plural(Math.round(m.effective), "row") + ": their axes may be any of their span." : ""
}

// Components

function show_components() {
  const m = data.model, shown = m ? m.pictures || m.loadings : []
  section("h-components").toggle("pictures", Boolean(m && m.pictures))
  const some = m && shown.length < m.components ? "The first " + shown.length + " of " + whole(m.components) + ". " : ""
  put("w-components", !m ? "None yet." : some + (m.pictures ? "Blue is negative, white is zero, vermilion is positive." : "The features with the largest loadings, and the share of the variance.") + " The subspace is expected to be " + short(m.span_error) + " from the population’s, for Gaussian rows (0 is equal, 1.41 orthogonal).")
  const now = JSON.stringify([shown, m && m.ratios])
  if (now === pictured) return
  pictured = now
  $("components").replaceChildren(...shown.map((each, k) => {
    const share = percent(m.ratios[k], 2)
    if (m.pictures) return make("li", null, {}, make("figure", null, {}, picture(each, "Component " + (k + 1)), make("figcaption", null, {}, make("b", String(k + 1)), make("span", share))))
    const most = Math.max(...each.map(([, value]) => Math.abs(value)), 1e-300)
    return make("li", null, {}, make("h3", "Component " + (k + 1), {}, make("span", share)), ...each.map(([name, value]) => make("div", null, {class: "load"},
      make("span", name, {class: "who", title: name}),
      make("span", null, {class: "how", "aria-hidden": "true"}, make("i", null, {style: "width: " + 50 * Math.abs(value) / most + "%; background: " + (value < 0 ? BLUE + "; right: 50%" : VERMILION + "; left: 50%")})),
      make("span", value.toFixed(3).replace("-", "−"), {class: "what"}))))
  }))
}

// Alarms

const KINDS = {mean: "the mean has moved", spread: "the spread has changed", direction: "the directions have changed"}
const FOUND = {t2: "within the subspace", spe: "outside the subspace", subspace: "in the directions of the subspace"}
function show_alarms() {
  $("h-alarms").closest("section").hidden = !data.alarmed
  put("w-alarms", data.alarmed > data.alarms.length ? "The newest " + whole(data.alarms.length) + " of " + whole(data.alarmed) + "; open one for its row and features." : "Open one for its row and features.")
  const list = $("alarms"), now = data.alarms.map((each) => each.number).join()
  if (list.dataset.now === now) return
  list.dataset.now = now
  list.replaceChildren(...data.alarms.slice().reverse().map((each) => {
    const button = make("button", titled(each), {type: "button", "aria-expanded": "false", "aria-controls": "detail", "data-number": each.number})
    button.addEventListener("click", () => open_alarm(opened === each.number ? null : each.number, true))
    return make("li", null, {}, button)
  }))
  open_alarm(opened, false)
}
const titled = (each) => "Row " + whole(each.number) + (data.clock === "date" && each.time !== null ? ", " + moment(each.time) : "") + ": " + KINDS[each.kind] + ": " + each.moved
function open_alarm(number, focus) {
  const each = data.alarms.find((one) => one.number === number), detail = $("detail"), words = (text) => make("p", text, {class: "words"})
  opened = each ? number : null
  for (const button of $("alarms").querySelectorAll("button")) button.setAttribute("aria-expanded", String(button.dataset.number === String(opened)))
  detail.hidden = !each
  if (!each) return
  detail.replaceChildren(make("h3", titled(each)), words("Found " + FOUND[each.chart] + ", " + plural(each.since, "row") + " after the change."))
  if (each.label) detail.append(words("Raised by " + each.label + "."))
  if (each.shares.length) detail.append(words("What has changed most: " + each.shares.map(([name, share]) => name + " (" + percent(share, 0) + ")").join("; ") + "."))
  if (!each.features) return
  detail.append(words("An alarm comes from many rows. The one that raised it has T² " + short(each.t2) + ", SPE " + short(each.spe) + "."))
  if (each.pictures) {
    const names = ["the row", "its T²", "its SPE"]
    detail.append(make("div", null, {class: "shots"}, ...each.pictures.map((told, i) => make("figure", null, {}, picture(told, names[i]), make("figcaption", names[i])))))
  }
  const most = [2, 3].map((at) => Math.max(...each.features.map((line) => Math.abs(line[at] || 0)), 1e-300))
  const metered = (value, at, shade) => make("td", short(value), {}, make("span", null, {class: value < 0 ? "meter less" : "meter", style: "width: " + (100 * Math.abs(value || 0) / most[at]).toFixed(1) + "%; --c: " + shade}))
  const lines = each.features.map(([name, value, t2, spe]) => make("tr", null, {}, make("td", name, {title: name}), make("td", short(value)), metered(spe, 1, VERMILION), metered(t2, 0, BLUE)))
  detail.append(make("table", null, {}, make("thead", null, {}, make("tr", null, {}, ...["Feature", "Value", "adds to SPE", "adds to T²"].map((name) => make("th", name, {scope: "col"})))), make("tbody", null, {}, ...lines)))
  if (focus) detail.focus()
}

// Newest rows

const RAMP = [[18, 53, 112], [87, 93, 109], [165, 156, 116], [254, 232, 56]], BINS = 24
function ramp(share) {
  const at = Math.min(share, 0.9999) * (RAMP.length - 1), i = Math.floor(at)
  return "rgb(" + RAMP[i].map((c, j) => Math.round(c + (at - i) * (RAMP[i + 1][j] - c))).join() + ")"
}
function show_plane() {
  const r = data.rows, count = r ? r.numbers.length : 0
  section("h-plane").toggle("empty", !count)
  put("w-plane", count ? whole(count) + " of the rows " + whole(r.numbers[0]) + " to " + whole(last(r.numbers)) + (data.model.holes ? "; missing values are filled in." : ".") : data.status === "watching" ? "The file keeps no rows; psp fit … --monitor keeps the newest." : live() ? "No rows yet." : "No rows.")
  if (!count) return
  const axes = r.places.map((_, k) => [String(k), "component " + (k + 1)])
  options($("x"), [...axes, ["row", "row number"]], axes.length > 1 ? "0" : "row")
  options($("y"), axes, axes.length > 1 ? "1" : "0")
  options($("colour"), [["row", "time"], ["spe", "SPE"], ...data.ids.map((name, i) => [String(i), name])], "row")
  const x = $("x").value === "row" ? r.numbers : r.places[$("x").value], y = r.places[$("y").value], {groups, legend} = coloured(r, $("colour").value)
  const dots = (where, color, size) => ({kind: "dots", x: where.map((i) => x[i]), y: where.map((i) => y[i]), color, size})
  charts.plane.show({
    x: {kind: $("x").value === "row" ? "rows" : "number", label: $("x").selectedOptions[0].text}, y: {kind: "number", label: $("y").selectedOptions[0].text},
    series: [dots([...x.keys()], GREY, 6.5), ...groups.map(([shade, where]) => dots(where, shade, 5.5))],
    tip: {plane: true, x, y, text: (i) => [["row", whole(r.numbers[i])], ...(clocked() ? [["time", data.clock === "date" ? moment(r.times[i]) : short(r.times[i])]] : []), ["SPE", short(r.spe[i])], ...data.ids.map((name, j) => [name, (r.ids[i] || [])[j] || ""])]},
  })
  $("k-plane").replaceChildren()
  if (legend) key("k-plane", legend)
  else $("k-plane").append(...($("colour").value === "row" ? ["older", make("span", null, {class: "k ramp"}), "newer"] : ["small SPE", make("span", null, {class: "k ramp"}), "large SPE"]))
}
function options(select, wanted, first) {
  if (select.options.length !== wanted.length) {
    const kept = select.value
    select.replaceChildren(...wanted.map(([value, text]) => make("option", text, {value})))
    select.value = wanted.some(([value]) => value === kept) ? kept : first
  }
}
function coloured(r, by) {
  const all = [...r.numbers.keys()]
  if (by === "row" || by === "spe") {
    const value = by === "row" ? r.numbers : r.spe.map((v) => Math.log(v)), known = value.filter(isFinite), low = Math.min(...known), high = Math.max(...known)
    const bin = (i) => Math.min(BINS - 1, Math.floor((value[i] - low) / (high - low || 1) * BINS))
    return {groups: Array.from({length: BINS}, (_, b) => [ramp(b / (BINS - 1)), all.filter((i) => bin(i) === b)])}
  }
  const text = (i) => (r.ids[i] || [])[by] || "", counts = new Map()
  for (const i of all) counts.set(text(i), (counts.get(text(i)) || 0) + 1)
  const frequent = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([name]) => name).sort(), shades = [BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY]
  const groups = frequent.map((name, k) => [shades[k], all.filter((i) => text(i) === name)])
  return {groups, legend: [...frequent.map((name, k) => ["dot", shades[k], name.trim() || "(empty)"]), ...(counts.size > 6 ? [["dot", GREY, "others"]] : [])]}
}

// News, pausing, saving

function show() {
  for (const each of [show_facts, show_components, show_alarms, show_scores, show_plane, show_trends]) each()
}
async function listen() {
  while (!paused) {
    try {
      const answer = await fetch("data?" + version), text = await answer.text()
      if (paused) return
      lost = false
      const found = JSON.parse(text, revived)
      if (found.version !== version) {
        ({version, data} = found)
        raw = text.slice(text.indexOf('"data": ') + 8, -1)
        heard = performance.now()
        if (document.hidden) await new Promise((seen) => document.addEventListener("visibilitychange", seen, {once: true}))
        show()
      }
    } catch {
      lost = true
      show_status()
      if (!live()) return  // the run has ended, and its page with it
      await new Promise((go) => setTimeout(go, 1000))
    }
  }
}
function pause() {
  paused = !paused
  $("pause").setAttribute("aria-pressed", String(paused))
  put("pause", paused ? "Resume" : "Pause")
  show_status()
  if (!paused) listen()
}
function save() {
  const now = new Date().toISOString().slice(0, 16).replace("T", " ")
  source.querySelector("#data").textContent = ('{"version": 0, "saved": "' + (saved || now + " UTC") + '", "data": ' + raw + "}").replaceAll("<", "\\u003c")
  const file = new Blob(["<!DOCTYPE html>\n" + source.outerHTML], {type: "text/html"})
  const link = make("a", null, {href: URL.createObjectURL(file), download: "psp-" + now.replace(/[-: ]/g, "") + ".html"})
  link.click()
  URL.revokeObjectURL(link.href)
}
$("pause").hidden = Boolean(saved)
$("pause").addEventListener("click", pause)
$("save").addEventListener("click", save)
for (const id of ["x", "y", "colour"]) $(id).addEventListener("change", show_plane)
$("window").addEventListener("change", show_scores)
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return
  if (event.key === "p" && !saved) pause()
  if (event.key === "s") save()
  if (event.key === "Escape" && opened !== null) {
    const button = document.querySelector('#alarms button[data-number="' + opened + '"]')
    open_alarm(null)
    button.focus()
  }
})
put("about", "online-psp. " + (saved ? "This file needs no server." : "Nothing on this page changes the model.") + " Drag in a chart to zoom, double-click for all of it." + (saved ? "" : " Keys: p pauses, s saves, Esc closes an alarm."))
show()
if (!saved) { setInterval(show_status, 1000); listen() }
document.body.dataset.ready = "yes"
