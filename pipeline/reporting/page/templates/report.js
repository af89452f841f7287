"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const kind = data.units.topic.toLowerCase();
  const byId = new Map(data.topics.map((topic) => [topic.id, topic]));
  const panel = document.getElementById("panel");
  const SHOWN = 12, PAGE = 25;
  let chosen = null, weight = data.weights.includes(0.6) ? 0.6 : 1;

  const percent = (share, digits = 1) =>
    share > 0 && share < 0.001 ? "<0.1%" : (100 * share).toFixed(digits) + "%";
  const name = (topic) => (topic.title ? `${topic.title}: ` : "") + topic.top.map((word) => data.words[word]).join(" ");

  // All text goes in as text, never as markup.
  function make(tag, attributes = {}, ...children) {
    const svg = ["svg", "rect", "title"].includes(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }
  const link = (topic) =>
    make("a", { href: `#${kind}-${topic.id}`, "data-topic": topic.id }, `${topic.id} ${name(topic)}`);
  const bar = (...parts) => {
    const svg = make("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const [width, style] of parts) svg.append(make("rect", { width: width.toFixed(2), height: 10, class: style }));
    return svg;
  };
  const row = (cells, tag = "td") => make("tr", {}, ...cells.map(([text, style]) => {
    const cell = make(tag, tag === "th" ? { scope: "col" } : {}, text);
    if (style) cell.className = style;
    return cell;
  }));

  // Sievert and Shirley (2014): lambda log p(w|k) + (1 - lambda) log p(w|k) / p(w).
  function ranked(topic) {
    const relevance = ([word, p]) => Math.log(p) - (1 - weight) * Math.log(data.overall[word]);
    return topic.words.filter(([word, p]) => p > 0 && data.overall[word] > 0)
      .sort((one, other) => relevance(other) - relevance(one)).slice(0, SHOWN);
  }

  function wordTable(topic) {
    const table = make("table", { class: "relevant" });
    const head = make("thead"), body = make("tbody");
    table.append(head, body);
    if (data.signed) {
      head.append(row([["Column"], ["Loading", "n"], ["", "barred"]], "th"));
      const most = Math.max(...topic.words.map(([, value]) => Math.abs(value)));
      for (const [word, value] of topic.words)
        body.append(row([[data.words[word]], [value.toPrecision(3).replace("-", "\u2212"), "n"],
          [bar([100 * Math.abs(value) / most, value < 0 ? "all" : ""]), "barred"]]));
      return table;
    }
    head.append(row([["Word"], ["Probability", "n"], ["Lift", "n"], ["", "barred"]], "th"));
    const shown = ranked(topic);
    const most = Math.max(...shown.map(([word, p]) => Math.max(data.overall[word], p * topic.share)));
    for (const [word, p] of shown) {
      const lift = p / data.overall[word];
      body.append(row([[data.words[word]], [percent(p, 2), "n"], [lift.toFixed(lift < 10 ? 1 : 0), "n"],
        [bar([100 * data.overall[word] / most, "all"], [100 * Math.min(p * topic.share, data.overall[word]) / most, ""]), "barred"]]));
    }
    return table;
  }

  function exampleList(topic) {
    const list = make("ul", { class: "examples" });
    for (const [place, share, words, snippet] of topic.examples) {
      const example = data.documents[place];
      const item = make("li", {}, make("p", {}, example.title || example.id));
      const strip = make("svg", { class: "strip", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img" });
      strip.setAttribute("aria-label", "Proportions: " + example.topics.map(([id, p]) => `${id} ${percent(p)}`).join(", "));
      let left = 0;
      for (const [id, p] of example.topics) {
        const part = make("rect", { x: (100 * left).toFixed(2), width: (100 * p).toFixed(2), height: 10 });
        if (id === topic.id) part.setAttribute("class", "own");
        if (byId.has(id)) part.append(make("title", {}, `${id} ${name(byId.get(id))}: ${percent(p)}`));
        strip.append(part);
        left += p;
      }
      if (snippet) // every other part is a word of the topic
        item.append(make("p", { class: "snippet" }, ...snippet.map((part, n) => n % 2 ? make("mark", {}, part) : part)));
      item.append(strip);
      const length = data.signed ? "" : ` of its ${example.tokens.toLocaleString("en")} tokens`;
      item.append(make("p", { class: "meta" }, `${example.title ? example.id + ": " : ""}${percent(share)}${length}` +
        (words.length ? `, mainly ${words.map((word) => data.words[word]).join(", ")}` : "")));
      const others = make("ul", { class: "chips" });
      for (const [id, p] of example.topics.filter(([id]) => id !== topic.id && byId.has(id)).slice(0, 3))
        others.append(make("li", {}, link(byId.get(id)), ` ${percent(p)}`));
      if (others.children.length) item.append(others);
      list.append(item);
    }
    return list;
  }

  function labelLists(topic) {
    const lists = [];
    for (const field of data.fields) {
      const values = field.values.map((one) => [one, (one.topics.find(([id]) => id === topic.id) || [0, 0])[1]])
        .filter(([, share]) => share > 0).sort((one, other) => other[1] - one[1]).slice(0, 5);
      if (!values.length) continue;
      lists.push(make("h4", {}, `Largest mean proportion by ${field.field}`), make("ul", { class: "chips" },
        ...values.map(([one, share]) => make("li", {}, `${one.value} ${percent(share)}`))));
    }
    return lists;
  }

  function show(topic) {
    const place = data.topics.indexOf(topic);
    const facts = [`${percent(topic.share)} of the ${data.units.tokens}`];
    if (topic.below !== null) facts.push(`${percent(topic.below)} with its subtree`);
    if (topic.most !== null && !data.signed) facts.push(`main ${kind} of ${topic.most.toLocaleString("en")} ${data.units.documents}`);
    if (topic.stability !== null) facts.push(`stability ${topic.stability.toFixed(2)}`);
    const turn = make("div", { class: "turn" });
    for (const [text, label, step] of [["\u2190", `Previous ${kind}`, -1], ["\u2192", `Next ${kind}`, 1]]) {
      const button = make("button", { type: "button", "aria-label": label }, text);
      const other = data.topics[place + step];
      button.disabled = !other;
      button.addEventListener("click", () => { choose(other); panel.querySelectorAll("button")[step < 0 ? 0 : 1].focus(); });
      turn.append(button);
    }
    const parts = [turn, make("h3", {}, `${data.units.topic} ${topic.id}: ${name(topic)}`), make("p", { class: "aside" }, facts.join(", "))];
    let table = wordTable(topic);
    if (!data.signed) {
      const slider = make("input", { type: "range", id: "weight", min: 0, max: 1, step: 0.2, value: weight });
      const shown = make("output", { for: "weight" }, weight.toFixed(1));
      slider.addEventListener("input", () => {
        weight = Number(slider.value);
        shown.textContent = weight.toFixed(1);
        const updated = wordTable(topic);
        table.replaceWith(updated);
        table = updated;
      });
      parts.push(make("div", { class: "slide" }, make("label", { for: "weight" }, "Relevance \u03bb"), slider, shown,
        make("small", {}, `1 ranks words by their probability in the ${kind}, 0 by their lift`)));
    }
    parts.push(make("div", { class: "wide" }, table));
    if (!data.signed) parts.push(make("p", { class: "aside" }, `Lift: the word's probability in this ${kind} divided by its share of the corpus. Bars: the word's tokens in this ${kind} (dark) and in the corpus (pale).`));
    if (topic.examples.length)
      parts.push(make("h4", {}, `Example ${data.units.documents}`), exampleList(topic));
    parts.push(...labelLists(topic));
    panel.replaceChildren(...parts);
  }

  function choose(topic) {
    if (!topic) return;
    chosen = topic;
    document.querySelectorAll(".chosen").forEach((one) => one.classList.remove("chosen"));
    for (const one of document.querySelectorAll(`svg [data-topic="${topic.id}"]`)) one.classList.add("chosen");
    const row = document.getElementById(`${kind}-${topic.id}`);
    if (row) row.classList.add("chosen");
    show(topic);
  }

  // Links to a topic show it, wherever they stand; the address names it, so that it can be passed on.
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-topic]");
    if (!target) return;
    event.preventDefault();
    history.replaceState(null, "", `#${kind}-${target.getAttribute("data-topic")}`);
    choose(byId.get(Number(target.getAttribute("data-topic"))));
    if (!target.closest("#explore")) document.getElementById("panel").scrollIntoView({ block: "nearest" });
  });
  function fromAddress() {
    const id = location.hash.startsWith(`#${kind}-`) ? Number(location.hash.slice(kind.length + 2)) : null;
    if (byId.has(id)) choose(byId.get(id));
    return byId.has(id);
  }
  window.addEventListener("hashchange", fromAddress);

  // The table: pages of rows, and those that have a word.
  const rows = [...document.querySelectorAll("#table tbody tr")];
  const texts = rows.map((one) => one.textContent.toLowerCase());
  const find = document.getElementById("find"), back = document.getElementById("back"), next = document.getElementById("next");
  let page = 0;
  function turnTo(number) {
    const query = find.value.trim().toLowerCase();
    const shown = rows.filter((_, place) => !query || texts[place].includes(query));
    const last = Math.max(Math.ceil(shown.length / PAGE) - 1, 0);
    page = Math.min(Math.max(number, 0), last);
    for (const one of rows) one.hidden = true;
    for (const one of shown.slice(page * PAGE, (page + 1) * PAGE)) one.hidden = false;
    document.getElementById("matches").textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} ${data.units.topics}`;
    document.getElementById("page").textContent = `Page ${page + 1} of ${last + 1}`;
    document.getElementById("pages").hidden = last === 0;
    back.disabled = page === 0;
    next.disabled = page === last;
  }
  if (rows.length > PAGE) {
    document.getElementById("controls").hidden = false;
    find.addEventListener("input", () => turnTo(0));
    back.addEventListener("click", () => turnTo(page - 1));
    next.addEventListener("click", () => turnTo(page + 1));
    turnTo(0);
  }

  // A tree begins with its root, which lies half-way down.
  const frame = document.querySelector(".frame"), root = frame && frame.querySelector("a");
  if (root) {
    const box = root.getBoundingClientRect(), around = frame.getBoundingClientRect();
    frame.scrollTop += (box.top + box.bottom) / 2 - (around.top + around.bottom) / 2;
  }

  for (const one of document.querySelectorAll("[data-name]")) {
    const topic = byId.get(Number(one.dataset.name));
    if (topic) one.textContent = `${topic.id} ${name(topic)}`;
  }
  if (!fromAddress() && data.topics.length)
    choose(data.topics.reduce((one, other) => (other.share > one.share ? other : one)));
})();
