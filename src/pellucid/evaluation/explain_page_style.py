"""How the page of `pellucid explain` looks, by day and by night, on a wide screen and on a phone.

Orange and blue, and green for the model, are told apart by every kind of colour vision (Okabe and Ito). A shade lets
some of the paper through; the darkest ones of the night carry dark letters, so that all can be read.
"""

STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --panel: #f3f2ee; --ink: #1b1c1e; --muted: #5d6066; --line: #dcdad3;
  --orange: 236 120 12; --blue: 72 160 220; --model: #009e73; --truth: #6b6e75; --last: #1b1c1e;
  --a1: .13; --a2: .28; --a3: .48; --a4: .72; }
@media (prefers-color-scheme: dark) { :root { --paper: #17181b; --panel: #222429; --ink: #e9e8e4; --muted: #a3a6ad;
  --line: #3a3d44; --model: #1bbf92; --truth: #a9acb3; --last: #111; --a1: .14; --a2: .26; --a3: .4; --a4: .55; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1, h2 { line-height: 1.2; margin: 0; }
h1 { font-size: 1.9rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-bottom: .75rem; }
h2 small { font-weight: 400; color: var(--muted); overflow-wrap: anywhere; }
section, details { margin-top: 2.25rem; }
.kicker { margin: 0 0 .2rem; color: var(--muted); }
.small, small { font-size: .82rem; color: var(--muted); }
.note { border-left: 4px solid rgb(var(--orange)); background: var(--panel); padding: .6rem .9rem; margin: 1rem 0 0;
  overflow-wrap: anywhere; }

.totals { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem; margin: 1.25rem 0 0; }
.totals div { background: var(--panel); border-radius: 8px; padding: .6rem .9rem; }
.totals dt { color: var(--muted); font-size: .82rem; }
.totals dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.totals dd.small { font-size: .82rem; }

.text { font: 1.15rem/2.1 Georgia, "DejaVu Serif", serif; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.t { border-radius: 4px; padding: .18em 0; cursor: help; }
.t:hover, .t:focus { outline: 2px solid var(--ink); outline-offset: 1px; }
.o1 { background: rgb(var(--orange) / var(--a1)); } .u1 { background: rgb(var(--blue) / var(--a1)); }
.o2 { background: rgb(var(--orange) / var(--a2)); } .u2 { background: rgb(var(--blue) / var(--a2)); }
.o3 { background: rgb(var(--orange) / var(--a3)); } .u3 { background: rgb(var(--blue) / var(--a3)); }
.o4 { background: rgb(var(--orange) / var(--a4)); } .u4 { background: rgb(var(--blue) / var(--a4)); }
.o5 { background: rgb(var(--orange)); color: var(--last); } .u5 { background: rgb(var(--blue)); color: var(--last); }
.end { font: .75rem system-ui, sans-serif; border: 1px solid var(--line); padding: .1em .4em; margin-left: .3em; }
.unknown { border-bottom: 2px dotted var(--muted); }
.never { border-bottom: 3px double rgb(var(--orange)); font-weight: 700; }

.card { display: none; position: fixed; z-index: 2; pointer-events: none; white-space: normal; color: var(--ink);
  background: var(--paper); border: 1px solid var(--line); box-shadow: 0 4px 24px rgb(0 0 0 / .25);
  font: 400 .9rem/1.45 system-ui, sans-serif; padding: .8rem 1rem; left: 0; right: 0; bottom: 0; }
.t:hover > .card, .t:focus > .card { display: block; }
.text:hover .t:focus:not(:hover) > .card { display: none; }
.card > .name { display: block; font: 700 1.1rem ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.card > .small { display: block; margin-bottom: .35rem; }
.fact { display: flex; justify-content: space-between; gap: 1rem; font-variant-numeric: tabular-nums; }
.fact > :first-child { color: var(--muted); }
.fact + .small { margin-top: .5rem; }
aside { display: none; color: var(--muted); font-size: .9rem; }

.legend { margin: 1.5rem 0 0; max-width: 34rem; font-size: .8rem; color: var(--muted); }
.legend figcaption { display: flex; justify-content: space-between; gap: 1rem; line-height: 1.3; margin-bottom: .3rem; }
.legend figcaption :last-child { text-align: right; }
.legend b { white-space: nowrap; }
.strip, .marks { display: flex; }
.strip span { flex: 1; height: 1.1rem; border: 1px solid var(--line); border-left-width: 0; }
.strip span:first-child { border-left-width: 1px; }
.marks span { flex: 1; text-align: center; }
.marks { padding: 0 calc(50% / 11); font-variant-numeric: tabular-nums; font-size: .72rem; }

.candidate { display: grid; grid-template-columns: 8rem minmax(0, 1fr) 4.6rem; gap: .75rem; align-items: center;
  padding: .22rem 0; border-top: 1px solid var(--line); font-size: .9rem; }
.candidate .name { font-family: ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.card .candidate { grid-template-columns: 6rem minmax(0, 1fr) 4.4rem; padding: .1rem 0; font-size: .8rem; }
.bars, .numbers { display: grid; gap: 2px; }
.numbers { text-align: right; font-variant-numeric: tabular-nums; font-size: .82rem; line-height: 1.25; }
.bar { display: block; height: .6rem; min-width: 1px; border-radius: 0 3px 3px 0; }
.bar.model { background: var(--model); }
.bar.truth { background: var(--truth); }
.key { display: flex; gap: 1.25rem; margin: 0 0 .4rem; color: var(--muted); font-size: .85rem; }
.key .bar { display: inline-block; width: 1.4rem; }

summary { cursor: pointer; font-weight: 600; }
.scroll { overflow-x: auto; margin-top: .5rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .22rem .8rem .22rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--muted); font-weight: 400; }
th:first-child, td:first-child { text-align: left; }
details dt { font-weight: 600; margin-top: .6rem; }
details dd { margin: 0; max-width: 44rem; }

@media (min-width: 60rem) {
  .reading { display: grid; grid-template-columns: minmax(0, 1fr) 19rem; gap: 2.5rem; }
  aside { display: block; border-left: 1px solid var(--line); padding-left: 1.25rem; align-self: stretch; }
  .card { width: 19rem; left: auto; right: max(1.25rem, calc(50vw - 30.75rem)); bottom: auto; top: 50%;
    transform: translateY(-50%); border-radius: 10px; }
}
@media (max-width: 59.99rem) { main { padding-bottom: 19rem; } }
"""
