// The script of a report's page: plain, without anything to load. Tables sort by their heads and filter by words and
// levels; one more chart has a factor on its x axis, lines and facets by others.
#include "study/report_script.h"

namespace drivetrain::study {
namespace {

constexpr const char* kBasics = R"js(
const D = JSON.parse(document.getElementById('study').textContent);
const el = (tag, attributes, ...children) => {
  const svg = ['svg', 'g', 'line', 'path', 'circle', 'text', 'title'].includes(tag);
  const space = svg ? 'http://www.w3.org/2000/svg' : 'http://www.w3.org/1999/xhtml';
  const e = document.createElementNS(space, tag);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
};
const choice = (words, chosen, changed) => {
  const e = el('select', {}, ...words.map((w, i) => el('option', i === chosen ? {selected: '', value: i} : {value: i}, w)));
  e.onchange = changed;
  return e;
};
const labelled = (text, e) => el('label', {}, text + ' ', e);
const cellOf = Object.fromEntries(D.cells.map(c => [c.id, c]));
const varying = D.factors.map((f, i) => i).filter(i => D.factors[i].varies);
const levelsOf = f => [...new Set(D.cells.map(c => c.levels[f]))];
const isNumber = text => text.trim() !== '' && isFinite(text);
const isFar = x => Math.abs(x) >= 1e7 || Math.abs(x) < 1e-3;
const short = x => x === 0 ? '0' : isFar(x) ? x.toExponential(2) : String(+x.toPrecision(Math.abs(x) < 1e4 ? 4 : 6));
)js";

// A table's rows are those of its bodies, or the bodies themselves where a cell has several rows.
constexpr const char* kTables = R"js(
const units = table => table.tBodies.length > 1 ? [...table.tBodies] : [...(table.tBodies[0] || {rows: []}).rows];
const key = (unit, column) => {
  const row = unit.rows ? unit.rows[0] : unit, text = (row.cells[column] || {textContent: ''}).textContent.trim();
  const number = text.replace(/^x /, '').match(/^[+-]?\d+\.?\d*(e[+-]?\d+)?/i);
  return {blank: text === '' || text === '-', number: number ? +number[0] : NaN, text};
};
const inOrder = (a, b, down) => {
  if (a.blank !== b.blank) return a.blank ? 1 : -1;
  const numbers = !isNaN(a.number) && !isNaN(b.number);
  return (numbers ? a.number - b.number : a.text.localeCompare(b.text, undefined, {numeric: true})) * (down ? -1 : 1);
};
const sortBy = (table, head) => {
  const down = head.getAttribute('aria-sort') === 'ascending', column = head.cellIndex;
  for (const other of head.parentNode.cells) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const list = units(table).map(u => [key(u, column), u]).sort((x, y) => inOrder(x[0], y[0], down)).map(x => x[1]);
  if (list.length) list[0].parentNode.append(...list);
};
for (const table of document.querySelectorAll('table.sorts'))
  for (const head of table.tHead.rows[0].cells) {
    head.tabIndex = 0, head.title = 'sort';
    head.onclick = () => sortBy(table, head);
    head.onkeydown = e => { if (e.key === 'Enter' || e.key === ' ') e.preventDefault(), sortBy(table, head); };
  }
const rows = [...document.querySelectorAll('[data-c]')];
for (const row of rows)
  if (cellOf[row.dataset.c]) row.title = 'differs from the reference: ' + cellOf[row.dataset.c].differs;

const words = el('input', {type: 'search', placeholder: 'words in a cell', size: 18}), count = el('span');
const filters = varying.map(f => choice(['all', ...levelsOf(f)], 0, () => filter()));
let shown = D.cells;
const filter = () => {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(w => w);
  shown = D.cells.filter(c => {
    const text = (c.label + ' ' + c.id + ' ' + c.differs).toLowerCase();
    return wanted.every(w => text.includes(w)) &&
      varying.every((f, i) => +filters[i].value === 0 || levelsOf(f)[filters[i].value - 1] === c.levels[f]);
  });
  const ids = new Set(shown.map(c => c.id));
  for (const row of rows) row.hidden = !ids.has(row.dataset.c);
  count.textContent = ids.size + ' of ' + D.cells.length + ' cells';
  draw();
};
words.oninput = () => filter();
)js";

constexpr const char* kSeries = R"js(
// What can be on the axes. Figures by the ranks are made of the speed.
const speed = D.figures.findIndex(f => f.name === 'TGS'), manyRanks = new Set(D.cells.map(c => c.ranks)).size > 1;
const byFactor = f => ({name: D.factors[f].name, factor: f, of: c => c.levels[f]});
const xs = [...(manyRanks ? [{name: 'ranks', of: c => String(c.ranks)}] : []),
  ...varying.map(byFactor), {name: 'cell', of: c => c.label}];
const times = (values, k) => values && values.map((v, i) => i < 3 ? v * k : v);
const ys = [...D.figures.map((f, i) => ({name: f.name, of: c => c.figures[i]})),
  ...(manyRanks ? [{name: 'tokens per second of all ranks', ideal: true, of: c => times(c.figures[speed], c.ranks)},
    {name: 'efficiency, % of the fewest ranks\' TGS', share: true, of: c => c.figures[speed]}] : [])];
const splits = [{name: 'nothing', of: () => ''}, ...varying.map(byFactor)];
const numeric = x => new Set(D.cells.map(x.of)).size > 1 && D.cells.every(c => isNumber(x.of(c)));
const firstX = Math.max(0, xs.findIndex(numeric));
const free = varying.filter(f => xs[firstX].factor !== f && !(xs[firstX].name === 'ranks' && D.factors[f].ranks));
const at = f => f === undefined ? 0 : splits.findIndex(s => s.factor === f);
const firstY = manyRanks && speed === 0 ? ys.findIndex(y => y.ideal) : 0;
const ySelect = choice(ys.map(y => y.name), firstY, () => draw());
const xSelect = choice(xs.map(x => x.name), firstX, () => draw());
const lineSelect = choice(splits.map(s => s.name), at(free[0]), () => draw());
const facetSelect = choice(splits.map(s => s.name), at(free[1]), () => draw());

// Lines join cells that differ in x alone.
const seriesOf = (cells, x, y, split) => {
  const lines = new Map();
  for (const c of cells) {
    if (c.noise) continue;
    const isX = f => f === x.factor || (x.name === 'ranks' && D.factors[f].ranks);
    const rest = c.levels.map((l, f) => isX(f) ? '' : l).join('\u0000');
    const name = x.name === 'cell' ? 'cells' : (c.own ? c.id : rest);
    if (!lines.has(name)) lines.set(name, {split: split.of(c), points: []});
    lines.get(name).points.push({cell: c, x: x.of(c), y: c.why ? null : y.of(c)});
  }
  for (const line of lines.values()) {
    const there = line.points.filter(p => p.y).sort((a, b) => a.cell.ranks - b.cell.ranks);
    if (y.share && there.length) {
      const base = there[0].y[0];
      for (const p of there) p.y = times(p.y, 100 / base);
    }
    if (y.ideal && there.length) line.perRank = there[0].y[0] / there[0].cell.ranks;
  }
  return [...lines.values()];
};
)js";

constexpr const char* kChart = R"js(
const W = 520, H = 330, L = 66, R = 16, T = 12, B = 46;
const COLOURS = ['#2a7fc8', '#cc5f1f', '#2a9a55', '#9a5fc5', '#c83e70', '#8f7d25', '#3a98a4', '#7a838c'];
const ticksOf = (low, high) => {
  const raw = (high - low) / 4 || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= raw), list = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) list.push(+v.toPrecision(12));
  return list;
};
const axisOf = (x, cells) => {
  const all = [...new Set(cells.map(x.of))];
  if (!numeric(x)) return {ticks: all, at: v => (all.indexOf(v) + 0.5) / Math.max(1, all.length)};
  const values = all.map(Number).sort((a, b) => a - b), low = values[0], high = values[values.length - 1];
  const log = low > 0 && high / low >= 8, f = v => log ? Math.log(v) : v, span = f(high) - f(low) || 1;
  return {ticks: values.map(String), at: v => 0.06 + 0.88 * (f(+v) - f(low)) / span, numeric: true};
};
const interval = y => y[3] > 1 && y[1] !== y[2] ? ', 95 % interval ' + short(y[1]) + ' to ' + short(y[2]) : '';
const hover = p => p.cell.label + '\n' + (p.y ? short(p.y[0]) + interval(p.y) + ', n = ' + p.y[3] : p.cell.why) +
  '\ndiffers from the reference: ' + p.cell.differs;
// Words that are too long for one line take several; none is cut.
const wrapped = (text, width) => text.split(' ').reduce((lines, w) => {
  if (lines.length && (lines[lines.length - 1] + ' ' + w).length <= width) lines[lines.length - 1] += ' ' + w;
  else lines.push(w);
  return lines;
}, []);
const facet = (title, lines, axis, range, colour, x, y) => {
  const px = v => L + axis.at(v) * (W - L - R);
  const py = v => T + (1 - (v - range[0]) / (range[1] - range[0])) * (H - T - B);
  const width = Math.max(6, Math.floor(70 / axis.ticks.length));
  const names = axis.ticks.map(t => wrapped(axis.numeric ? short(+t) : t, width));
  const many = axis.ticks.length > 12, deep = many ? 1 : Math.max(1, ...names.map(n => n.length));
  const failed = lines.flatMap(l => l.points.filter(p => p.cell.why));
  const said = failed.flatMap(p => wrapped('\u00d7 ' + p.cell.label + ': ' + p.cell.why, 78));
  const below = H + 15 * (deep - 1), s = el('svg', {viewBox: `0 0 ${W} ${below + 15 * said.length + 6}`, role: 'img'});
  const text = (at, words, more) =>
    s.append(el('text', {x: at[0], y: at[1], fill: 'var(--ink)', 'font-size': 12, ...more}, words));
  for (const v of ticksOf(range[0], range[1])) {
    s.append(el('line', {x1: L, x2: W - R, y1: py(v), y2: py(v), stroke: 'var(--grid)', 'stroke-width': 0.4}));
    text([L - 6, py(v) + 4], short(v), {'text-anchor': 'end'});
  }
  s.append(el('path', {d: `M${L} ${T}V${H - B}H${W - R}`, fill: 'none', stroke: 'var(--ink)'}));
  names.forEach((name, i) => {
    if (many && i % Math.ceil(axis.ticks.length / 12)) return;
    const shownAs = many && !axis.numeric ? [String(i + 1)] : name;
    shownAs.forEach((n, k) => text([px(axis.ticks[i]), H - B + 16 + 15 * k], n, {'text-anchor': 'middle'}));
  });
  const which = many && !axis.numeric ? ' (by number; hovering says which)' : '';
  text([(L + W - R) / 2, below - 6], x.name + which, {'text-anchor': 'middle'});
  for (const line of lines) {
    const there = line.points.filter(p => p.y), c = colour(line.split);
    if (axis.numeric) there.sort((a, b) => a.x - b.x);
    const path = (at, more) => s.append(el('path', {
      d: 'M' + there.map(p => px(p.x) + ' ' + py(at(p))).join('L'), fill: 'none', stroke: c, ...more}));
    if (x.name !== 'cell' && there.length > 1) path(p => p.y[0], {'stroke-width': 1.5});
    if ((line.perRank || y.share) && x.name === 'ranks' && there.length > 1)
      path(p => y.share ? 100 : line.perRank * p.cell.ranks, {stroke: 'var(--grid)', 'stroke-dasharray': '5 4'});
    for (const p of there)
      s.append(el('g', {}, el('title', {}, hover(p)), el('circle', {cx: px(p.x), cy: py(p.y[0]), r: 4, fill: c}),
        el('line', {x1: px(p.x), x2: px(p.x), y1: py(p.y[1]), y2: py(p.y[2]), stroke: c})));
  }
  for (const p of failed)
    s.append(el('g', {}, el('title', {}, hover(p)), el('path', {
      d: `M${px(p.x) - 4} ${H - B - 10}l8 8m0 -8l-8 8`, stroke: 'var(--bad)', 'stroke-width': 2, fill: 'none'})));
  said.forEach((line, i) => text([8, below + 12 + 15 * i], line, {fill: 'var(--bad)'}));
  const box = el('figure', {}, s);
  if (title) box.prepend(el('figcaption', {}, title));
  return box;
};
)js";

constexpr const char* kPage = R"js(
const legend = el('p', {class: 'legend'}), facets = el('div', {class: 'facets'});
const draw = () => {
  const x = xs[xSelect.value], y = ys[ySelect.value], split = splits[lineSelect.value], by = splits[facetSelect.value];
  const lines = seriesOf(shown, x, y, split), cells = shown.filter(c => !c.noise);
  const axis = axisOf(x, cells.length ? cells : D.cells), names = [...new Set(D.cells.map(split.of))];
  const colour = name => COLOURS[Math.max(0, names.indexOf(name)) % COLOURS.length];
  const scales = (y.ideal || y.share) && x.name === 'ranks', ideal = (l, p) => y.share ? 100 : l.perRank * p.cell.ranks;
  const valuesOf = l => l.points.filter(p => p.y).flatMap(p => [p.y[1], p.y[2], scales ? ideal(l, p) : p.y[0]]);
  const all = lines.flatMap(valuesOf);
  let low = Math.min(...all), high = Math.max(...all);
  if (!all.length) low = 0, high = 1;
  if (low > 0 && (low < 0.5 * high || y.ideal || y.share)) low = 0;
  const pad = 0.06 * (high - low || Math.abs(high) || 1), range = [low === 0 ? 0 : low - pad, high + pad];
  const entry = n => el('span', {style: 'color:' + colour(n)}, '\u25cf ' + split.name + ' ' + n);
  legend.replaceChildren(...(split.name === 'nothing' ? [] : names.map(entry)),
    ...(scales ? ['dashed: ideal, a rank\'s speed with the fewest ranks'] : []));
  const partOf = (l, part) => ({...l, points: l.points.filter(p => by.of(p.cell) === part)});
  facets.replaceChildren(...[...new Set(cells.map(by.of))].map(part => facet(
    by.name === 'nothing' ? '' : by.name + ' ' + part,
    lines.map(l => partOf(l, part)).filter(l => l.points.length), axis, range, colour, x, y)));
};
const tools = document.getElementById('tools');
const bar = (...children) => el('p', {class: 'filter'}, ...children);
tools.append(bar(labelled('show', words), ...varying.map((f, i) => labelled(D.factors[f].name, filters[i])), count),
  el('h2', {}, 'By a factor'),
  bar(labelled('figure', ySelect), labelled('over', xSelect), labelled('lines by', lineSelect),
    labelled('facets by', facetSelect)), legend, facets);
filter();
)js";

}  // namespace

std::string page_script() {
  return std::string("<script>'use strict';{") + kBasics + kTables + kSeries + kChart + kPage + "}</script>\n";
}

}  // namespace drivetrain::study
