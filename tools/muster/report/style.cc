#include "tools/muster/report/page.h"

namespace muster::cli::report {

// Colours of curves: told apart by people who do not see all colours, with dashes besides, and of
// enough contrast on their background.
const std::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --bg: #ffffff; --panel: #f6f7f9; --fg: #1a1d21; --soft: #59626e; --line: #d5dae1; --grid: #e3e7ec;
  --bad: #c0262d; --warn: #8a5a00; --good: #1d7a3c; --busy: #3f7fd0; --idle: #9aa3ae;
  --c0: #1f6fc4; --c1: #c2570c; --c2: #15803d; --c3: #a21caf;
  --c4: #0e7490; --c5: #b91c1c; --c6: #6d5bd0; --c7: #6b6a10;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #14171b; --panel: #1c2026; --fg: #e6e9ee; --soft: #a2acb9; --line: #353c46;
    --grid: #2a3038; --bad: #ff7b7b; --warn: #f0b95a; --good: #6fd08c; --busy: #4f8fe0;
    --idle: #737d8a;
    --c0: #6cb0ff; --c1: #ff9d57; --c2: #5fd38a; --c3: #ec8bf5;
    --c4: #4fd0e6; --c5: #ff8080; --c6: #b3a6ff; --c7: #d6d45a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem clamp(0.9rem, 3vw, 2.5rem) 3rem; max-width: 100rem;
  background: var(--bg); color: var(--fg);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
h1 { font-size: 1.55rem; line-height: 1.25; margin: 0 0 0.2rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 0.7rem; padding-bottom: 0.25rem;
     border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.2rem 0 0.5rem; overflow-wrap: anywhere; }
p { margin: 0.4rem 0; overflow-wrap: anywhere; }
small, .soft, .note, .at { color: var(--soft); }
.note, .empty { font-size: 0.9rem; }
.empty { color: var(--soft); }
.at { font-size: 0.85em; white-space: nowrap; }
.warn { color: var(--warn); }
.state { font-weight: 600; }
.state.finished { color: var(--good); }
.state.failed, .state.died { color: var(--bad); }
.state.interrupted { color: var(--warn); }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, "Liberation Mono", monospace;
            font-size: 0.87em; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px;
      padding: 0.7rem 0.9rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: 0.6rem 0; }
summary { cursor: pointer; color: var(--soft); }
.wide { overflow-x: auto; }
.charts + .wide { margin-top: 0.9rem; }
.run { display: inline-block; max-width: 11rem; overflow: hidden; text-overflow: ellipsis;
       white-space: nowrap; vertical-align: bottom; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 0.22rem 0.9rem 0.22rem 0;
         overflow-wrap: anywhere; }
thead th { color: var(--soft); font-weight: 500; font-size: 0.85rem; }
tbody th { font-weight: 500; min-width: 6.5rem; }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
.num { text-align: right; white-space: nowrap; }
tr.fault td { color: var(--bad); }
table.facts th { color: var(--soft); font-weight: 500; min-width: 7.5rem; }
table.facts td { min-width: 9rem; }
.changed td { font-weight: 600; }
.hash { font-family: ui-monospace, Menlo, "Liberation Mono", monospace; font-size: 0.85em; }
.charts { display: grid; gap: 1rem;
          grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); }
.chart { margin: 0; padding: 0.8rem 0.9rem; background: var(--panel); border: 1px solid var(--line);
         border-radius: 8px; min-width: 0; break-inside: avoid; }
figcaption { font-weight: 600; margin-bottom: 0.7rem; overflow-wrap: anywhere; }
figcaption small { font-weight: 400; margin-left: 0.35rem; }
.plot { display: grid; grid-template-columns: auto 1fr; grid-template-rows: 13rem auto;
        margin-bottom: 0.6rem; }
.plot > svg { grid-column: 2; grid-row: 1; width: 100%; height: 100%; overflow: visible; }
.y { grid-column: 1; grid-row: 1; position: relative; width: 3.6rem; }
.y span { position: absolute; right: 0.5rem; transform: translateY(-50%); }
.x { grid-column: 2; grid-row: 2; position: relative; height: 1.5rem; }
.y span, .x span, .times span { font-size: 0.78rem; color: var(--soft); white-space: nowrap;
                                font-variant-numeric: tabular-nums; }
.x span, .times span { position: absolute; top: 0.35rem; transform: translateX(-50%); }
.x span.end, .times span.end { transform: translateX(-100%); }
.x span.start, .times span.start { transform: none; }
.plot path { fill: none; vector-effect: non-scaling-stroke; }
.grid { stroke: var(--grid); stroke-width: 1; }
.line { stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.raw { stroke-width: 1; stroke-opacity: 0.32; stroke-linejoin: round; }
.dots { stroke-width: 6; stroke-linecap: round; stroke-dasharray: none !important; }
.plot .bad { stroke: var(--bad); stroke-width: 1.5; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
.c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.c1 .line { stroke-dasharray: 7 4; } .c2 .line { stroke-dasharray: 2 4; }
.c3 .line { stroke-dasharray: 9 3 2 3; } .c4 .line { stroke-dasharray: 4 3; }
.c5 .line { stroke-dasharray: 12 4; } .c6 .line { stroke-dasharray: 6 3 2 3 2 3; }
.c7 .line { stroke-dasharray: 1 3; }
.swatch { width: 24px; height: 8px; margin-right: 0.45rem; flex: none; vertical-align: middle; }
.swatch path { fill: none; stroke-width: 2.5; }
table.values { width: 100%; font-size: 0.83rem; }
table.values th, table.values td { padding: 0.16rem 0.6rem 0.16rem 0; min-width: 0; }
.values .at { display: inline-block; }
.values tbody th { white-space: nowrap; }
.values .run { max-width: 7rem; }
.timeline { display: grid; grid-template-columns: minmax(3rem, max-content) 1fr;
            column-gap: 0.7rem; align-items: center; }
.who { font-size: 0.85rem; max-width: 9rem; overflow: hidden; text-overflow: ellipsis;
       white-space: nowrap; }
.track { width: 100%; height: 26px; display: block; overflow: visible;
         border-bottom: 1px solid var(--grid); }
.track .busy { fill: var(--busy); }
.track .idle { fill: none; stroke: var(--idle); stroke-width: 1; stroke-dasharray: 3 3; }
.track text { fill: var(--fg); font-size: 12px; text-anchor: middle; }
.track .cut { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; }
.mark .touch { fill: transparent; stroke: none; }
.mark path { stroke: var(--bad); stroke-width: 2.6; stroke-linecap: round; fill: none; }
.mark.planned circle:not(.touch) { fill: var(--bg); stroke: var(--soft); stroke-width: 2; }
.times { position: relative; height: 1.6rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0.3rem 1.4rem; margin: 0.5rem 0; font-size: 0.88rem;
          color: var(--soft); }
.legend svg { display: inline-block; width: 16px; height: 16px; vertical-align: -3px;
              margin-right: 0.3rem; border: 0; }
ul.log { margin: 0.4rem 0; padding-left: 1.1rem; font-size: 0.88rem; overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; font-size: 0.85rem; color: var(--soft); }
@media (max-width: 30rem) {
  body { font-size: 14px; }
  .y { width: 2.9rem; }
  .plot { grid-template-rows: 11rem auto; }
  .who { max-width: 4.5rem; }
  .run { max-width: 5.5rem; }
  table.facts th { min-width: 5.5rem; }
}
@media print {
  :root {
    color-scheme: light;
    --bg: #ffffff; --panel: #ffffff; --fg: #000000; --soft: #444b55; --line: #b9c0c9;
    --grid: #dde2e8; --bad: #b3161d; --warn: #7a4f00; --good: #14662f; --busy: #3f7fd0;
    --idle: #7d8691;
    --c0: #1f6fc4; --c1: #c2570c; --c2: #15803d; --c3: #a21caf;
    --c4: #0e7490; --c5: #b91c1c; --c6: #6d5bd0; --c7: #6b6a10;
  }
  @page { margin: 14mm; }
  body { max-width: none; padding: 0; font-size: 10.5pt; print-color-adjust: exact;
         -webkit-print-color-adjust: exact; }
  h2, h3 { break-after: avoid; }
  .charts { grid-template-columns: 1fr 1fr; }
  .timeline, tr, pre { break-inside: avoid; }
  .wide { overflow: visible; }
}
)css";

}  // namespace muster::cli::report
