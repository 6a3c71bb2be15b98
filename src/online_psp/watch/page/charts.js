"use strict"
// Charts drawn as SVG: lines, bands, dots, triangles and marks over linear, logarithmic and time axes. Drag to zoom, double-click for all.

const BLUE = "#0072B2", ORANGE = "#E69F00", GREEN = "#009E73", VERMILION = "#D55E00", SKY = "#56B4E9", PURPLE = "#CC79A7", BROWN = "#8C6D1F", GREY = "#8A8A8A"
const SHADES = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BROWN, GREY]  // Okabe and Ito's, which the colour-blind can tell apart

function svg(name, attributes, ...inside) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name)
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value)
  node.append(...inside)
  return node
}

// Numbers as text

function power(x, digits) {
  const [part, exponent] = x.toExponential(digits).split("e")
  const raised = [...String(Number(exponent))].map((c) => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join("")
  return (part.replace("-", "−") + "×10" + raised)
}
const extreme = (size) => size !== 0 && (size >= 1e6 || size < 1e-3)
function short(x) {
  if (x === null || x === undefined || !isFinite(x)) return "–"
  return extreme(Math.abs(x)) ? power(x, 2) : x.toLocaleString("en-US", {maximumSignificantDigits: 4}).replace("-", "−")
}
const whole = (x) => x === null || x === undefined ? "–" : Math.round(x).toLocaleString("en-US")
const moment = (seconds) => isFinite(seconds) ? new Date(1000 * seconds).toISOString().replace("T", " ").replace(/(\.000)?Z$/, "") : "–"

// Ticks: [place, text]

function nice(step) {
  const unit = 10 ** Math.floor(Math.log10(step))
  return unit * [1, 2, 5, 10].find((part) => part * unit >= step * 0.999)
}
function multiples(low, high, step) {
  const found = []
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step && found.length < 50; i++) found.push(i * step + 0)  // no −0
  return found
}
function labelled(ticks, step) {
  const most = Math.max(...ticks.map(Math.abs)), digits = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)))
  if (extreme(most)) {
    const exponent = Math.floor(Math.log10(most)), finest = Math.max(0, exponent - Math.floor(Math.log10(step) + 1e-9))
    return ticks.map((x) => [x, x === 0 ? "0" : power(x, Math.max(0, finest - exponent + Math.floor(Math.log10(Math.abs(x)))))])
  }
  return ticks.map((x) => [x, x.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits}).replace("-", "−")])
}
function linear_ticks(low, high, count, least) {
  const step = Math.max(least || 0, nice((high - low) / count))
  return labelled(multiples(low, high, step), step)
}
function row_ticks(low, high, count) {
  const step = Math.max(1, nice((high - low) / count)), [unit, letter] = high >= 1e9 ? [1e9, " bn"] : high >= 1e6 ? [1e6, " m"] : [1, ""]
  return labelled(multiples(low, high, step).map((x) => x / unit), step / unit).map(([x, text]) => [x * unit, text + letter])
}
function log_ticks(low, high, count) {
  const decades = Math.log10(high / low)
  if (decades < 0.8) return linear_ticks(low, high, count)
  const parts = decades > 2.5 ? [1] : decades > 1.2 ? [1, 3] : [1, 2, 5], step = Math.ceil(decades / count), found = []
  for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++) {
    if (k % step === 0) found.push(...parts.map((part) => Number(part + "e" + k)).filter((x) => x >= low && x <= high))
  }
  const large = found.some(extreme)
  return found.map((x) => [x, large ? power(x, 0) : x.toLocaleString("en-US", {maximumSignificantDigits: 3})])
}
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 7776000, 31536000]
function date_ticks(low, high, count) {
  const step = STEPS.find((each) => each >= (high - low) / count) || nice((high - low) / count)
  let day = ""
  return multiples(low, high, step).map((x) => {
    const text = moment(x), same = text.slice(0, 10) === day
    day = text.slice(0, 10)
    return step >= 86400 ? [x, day] : [x, step >= 60 ? text.slice(11, 16) : text.slice(11, 19), same ? "" : day + " UTC"]
  })
}
const TICKS = {rows: row_ticks, date: date_ticks, seconds: linear_ticks, number: linear_ticks, log: log_ticks, count: (low, high, count) => linear_ticks(low, high, count, 1)}

const LEFT = 78, RIGHT = 14, TOP = 8, BOTTOM = 42

class Chart {
  // spec: {x: {label, kind}, y: {label, kind}, series: [{kind, x, y, y2, color, size, alpha}], tip: {series, text(i)}, marks: [x], pick(i)}
  constructor(holder, height) {
    this.holder = holder
    this.height = height
    this.zoom = null
    this.svg = svg("svg", {role: "img", height})
    this.tip = document.createElement("div")
    this.tip.className = "tip"
    this.tip.hidden = true
    holder.append(this.svg, this.tip)
    new ResizeObserver(() => this.paint()).observe(holder)
    this.svg.addEventListener("pointermove", (event) => this.moved(event))
    this.svg.addEventListener("pointerleave", () => { this.tip.hidden = true; if (this.dot) this.dot.remove() })
    this.svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") this.drag = [event.offsetX, event.offsetY] })
    this.svg.addEventListener("pointerup", (event) => this.released(event))
    this.svg.addEventListener("dblclick", () => { this.zoom = null; this.paint() })
  }

  show(spec) {
    if (this.spec && this.spec.x.kind + this.spec.x.label + this.spec.y.label !== spec.x.kind + spec.x.label + spec.y.label) this.zoom = null
    this.spec = spec
    this.paint()
  }

  range(axis, log) {
    if (this.zoom) return this.zoom[axis]
    let low = Infinity, high = -Infinity
    for (const each of this.spec.series) for (const values of axis === "x" ? [each.x] : each.y2 ? [each.y, each.y2] : [each.y]) for (const value of values) {
      if (!isFinite(value) || (log && value <= 0)) continue
      if (value < low) low = value
      if (value > high) high = value
    }
    if (low > high) return null
    if (log) { const pad = Math.max(1.05, (high / low) ** 0.04); return [low / pad, high * pad] }
    const {least} = this.spec[axis], wide = high - low > (least || 1e-9 * Math.abs(high))
    const pad = wide ? 0.04 * (high - low) : least / 2 || 0.05 * Math.abs(high) || 1
    return [low - pad, high + pad]
  }

  paint() {
    const width = this.holder.clientWidth, spec = this.spec
    if (!spec || !width) return
    const log = spec.y.kind === "log", xs = this.range("x", false), ys = this.range("y", log)
    this.svg.setAttribute("width", width)
    this.svg.replaceChildren()
    this.tip.hidden = true
    this.scale = null
    if (!xs || !ys) return
    const right = width - RIGHT, bottom = this.height - BOTTOM, f = log ? Math.log10 : (v) => v, low = f(ys[0]), high = f(ys[1])
    const X = (v) => LEFT + (v - xs[0]) / (xs[1] - xs[0]) * (right - LEFT), Y = (v) => bottom - (f(v) - low) / (high - low) * (bottom - TOP)
    const fine = (v) => isFinite(v) && (!log || v > 0)
    this.scale = {X, Y, xs, ys, right, bottom, low, high, log, fine}
    const axes = svg("g", {class: "axes"})
    for (const [at, text] of TICKS[spec.y.kind](ys[0], ys[1], 5)) {
      axes.append(svg("line", {x1: LEFT, x2: right, y1: Y(at), y2: Y(at)}), svg("text", {x: LEFT - 8, y: Y(at) + 4, "text-anchor": "end"}, text))
    }
    let free = -Infinity
    for (const [at, text, day] of TICKS[spec.x.kind](xs[0], xs[1], Math.max(2, Math.min(7, width / 110)))) {
      axes.append(svg("line", {x1: X(at), x2: X(at), y1: bottom, y2: bottom + 4}))
      const half = 3.6 * Math.max(text.length, (day || "").length)
      if (X(at) - half < free || X(at) + half > width) continue
      free = X(at) + half + 6
      axes.append(svg("text", {x: X(at), y: bottom + 17, "text-anchor": "middle"}, text))
      if (day) axes.append(svg("text", {x: X(at), y: bottom + 31, "text-anchor": "middle"}, day))
    }
    axes.append(svg("line", {class: "base", x1: LEFT, x2: right, y1: bottom, y2: bottom}))
    axes.append(svg("text", {x: (LEFT + right) / 2, y: this.height - 4, "text-anchor": "middle"}, spec.x.label))
    axes.append(svg("text", {transform: "translate(12 " + (TOP + bottom) / 2 + ") rotate(-90)", "text-anchor": "middle"}, spec.y.label))
    const inner = svg("svg", {x: LEFT, y: TOP, width: Math.max(0, right - LEFT), height: bottom - TOP, viewBox: [LEFT, TOP, Math.max(1, right - LEFT), bottom - TOP].join(" ")})
    for (const each of spec.series) inner.append(this.drawn(each))
    for (const at of spec.marks || []) inner.append(svg("line", {class: "mark", x1: X(at), x2: X(at), y1: TOP, y2: bottom, stroke: PURPLE, "stroke-width": 3}))
    this.svg.append(axes, inner)
  }

  drawn(each) {
    const {X, Y, fine, bottom} = this.scale, {x, y} = each
    let path = "", pen = "M"
    const at = (i, values) => X(x[i]).toFixed(1) + " " + Y(values[i]).toFixed(1)
    if (each.kind === "line" || each.kind === "dash") {
      for (let i = 0; i < x.length; i++) {
        if (fine(x[i]) && fine(y[i])) { path += pen + at(i, y); pen = "L" } else if (each.kind === "line") pen = "M"
      }
      return svg("path", {d: path, fill: "none", stroke: each.color, "stroke-width": each.size || 2, "stroke-linejoin": "round", "stroke-dasharray": each.kind === "dash" ? "6 4" : "none"})
    }
    if (each.kind === "band") {
      const there = [...x.keys()].filter((i) => fine(y[i]) && fine(each.y2[i]))
      path = there.map((i, n) => (n ? "L" : "M") + at(i, each.y2)).join("") + there.reverse().map((i) => "L" + at(i, y)).join("") + (there.length ? "Z" : "")
      return svg("path", {d: path, fill: each.color, "fill-opacity": 0.32})
    }
    const size = each.size || 5
    for (let i = 0; i < x.length; i++) if (fine(y[i]) && isFinite(x[i])) {
      path += "M" + at(i, y) + (each.kind === "triangles" ? "m-4 3l4 -7l4 7z" : "h0")
    }
    if (each.kind === "triangles") return svg("path", {class: "over", d: path, fill: each.color, "fill-opacity": 0.85})
    return svg("path", {d: path, fill: "none", stroke: each.color, "stroke-width": size, "stroke-linecap": "round", "stroke-opacity": each.alpha || 1})
  }

  nearest(event) {
    const {X, Y, fine} = this.scale, {x, y} = this.spec.tip, plane = this.spec.tip.plane
    let best = -1, least = plane ? 144 : Infinity
    for (let i = 0; i < x.length; i++) {
      if (!fine(y[i]) || !isFinite(x[i])) continue
      const across = X(x[i]) - event.offsetX, up = plane ? Y(y[i]) - event.offsetY : 0, far = across * across + up * up
      if (far < least) { least = far; best = i }
    }
    return best
  }
  moved(event) {
    if (!this.scale || !this.spec.tip) return
    if (this.drag && event.buttons) return this.stretch(event)
    const i = this.nearest(event)
    this.tip.hidden = i < 0 || event.offsetX < LEFT
    if (this.tip.hidden) return
    this.tip.replaceChildren(...this.spec.tip.text(i).map(([name, value]) => {
      const line = document.createElement("div")
      line.append(name + " ", Object.assign(document.createElement("b"), {textContent: value}))
      return line
    }))
    const {X, Y, right} = this.scale, left = X(this.spec.tip.x[i])
    this.tip.style.left = Math.max(0, left > right - 170 ? left - 12 - this.tip.offsetWidth : left + 12) + "px"
    this.tip.style.top = Math.max(0, Y(this.spec.tip.y[i]) - 20) + "px"
    if (this.dot) this.dot.remove()
    this.svg.append(this.dot = svg("circle", {cx: left, cy: Y(this.spec.tip.y[i]), r: 5, fill: "none", stroke: "currentColor", "stroke-width": 1.5, "pointer-events": "none"}))
  }
  stretch(event) {
    const [x, y] = this.drag
    if (this.box) this.box.remove()
    this.svg.append(this.box = svg("rect", {class: "box", x: Math.min(x, event.offsetX), y: Math.min(y, event.offsetY), width: Math.abs(x - event.offsetX), height: Math.abs(y - event.offsetY)}))
  }
  released(event) {
    const drag = this.drag, s = this.scale
    this.drag = null
    if (!s) return
    const back = (px) => s.xs[0] + (px - LEFT) / (s.right - LEFT) * (s.xs[1] - s.xs[0])
    const up = (px) => { const v = s.low + (s.bottom - px) / (s.bottom - TOP) * (s.high - s.low); return s.log ? 10 ** v : v }
    if (drag && Math.abs(drag[0] - event.offsetX) > 6 && Math.abs(drag[1] - event.offsetY) > 6) {
      const ordered = (a, b) => a < b ? [a, b] : [b, a]
      this.zoom = {x: ordered(back(drag[0]), back(event.offsetX)), y: ordered(up(drag[1]), up(event.offsetY))}
      return this.paint()
    }
    if (this.box) this.box.remove()
    const far = (this.spec.marks || []).map((at) => Math.abs(s.X(at) - event.offsetX)), least = Math.min(...far)
    if (least < 8) this.spec.pick(far.indexOf(least))
  }
}

// Pictures

const MIDDLE = [247, 247, 247], ENDS = [[0, 114, 178], [213, 94, 0]]
function picture(told, name) {  // blue for negative, white for zero, vermilion for positive; or grey
  const [height, width, channels] = told.shape, bytes = unpacked(told.bytes), canvas = document.createElement("canvas")
  canvas.width = width
  canvas.height = height
  canvas.setAttribute("role", "img")
  canvas.setAttribute("aria-label", name)
  const image = new ImageData(width, height)
  for (let i = 0; i < width * height; i++) {
    const share = Math.abs(bytes[i * channels] - 127.5) / 127.5, end = ENDS[bytes[i * channels] < 127.5 ? 0 : 1]
    for (let c = 0; c < 3; c++) {
      image.data[4 * i + c] = channels === 3 ? bytes[3 * i + c] : told.signed ? MIDDLE[c] + share * (end[c] - MIDDLE[c]) : bytes[i]
    }
    image.data[4 * i + 3] = 255
  }
  canvas.getContext("2d").putImageData(image, 0, 0)
  return canvas
}
const unpacked = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
const revived = (_, value) => value && typeof value.f64 === "string" ? new Float64Array(unpacked(value.f64).buffer) : value
