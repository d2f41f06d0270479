// Tells a reader whether an answer is right, and keeps written predictions in this browser. Without scripts,
// answers are still there to unfold, and steppers still step.

// The number that a reader has typed and what stands behind it, its unit perhaps: [1500, "rows"] for "1,500 rows". No number is
// NaN. Any minus and a comma for the decimal point will do; a comma before three digits groups them, as the book itself does.
const read = text => {
    const plain = text.trim().replace(/[\u2010-\u2015\u2212]/g, "-").replace(/(\d)[\s_'’](?=\d{3}(?!\d))/g, "$1");
    const [, sign, digits, unit] = plain.match(/^([-+]?)\s*([\d.,]*\d\.?(?:e[-+]?\d+)?)?\s*(.*)$/is);
    const grouped = /^[1-9]\d*(,\d{3})+(?![\d,])/.test(digits);
    const number = Number(digits?.replaceAll(",", (_, at) => grouped ? "" : at === digits.lastIndexOf(",") ? "." : ","));
    return [sign === "-" ? -number : number, unit.replace(/\s+/g, " ").toLowerCase()];
};

for (const question of document.querySelectorAll(".question")) {
    const details = question.querySelector("details");
    const said = question.querySelector(".said");
    const clear = () => {
        for (const marked of question.querySelectorAll(".is-right, .is-wrong")) marked.classList.remove("is-right", "is-wrong");
        said.textContent = "";
    };
    const mark = (element, right) => {
        clear();
        element.classList.add(right ? "is-right" : "is-wrong");
        said.textContent = right ? "Right" : "Not right";
        if (right) details.open = true;
    };
    for (const radio of question.querySelectorAll("input[type=radio]")) {
        radio.addEventListener("change", () => mark(radio.closest("li"), radio.value === question.dataset.answer));
    }
    const typed = question.querySelector("input[type=text]");
    const judge = () => {
        // What has been judged is, until it is changed.
        if (typed.value.trim() === "" || said.textContent) return;
        const [given, unit] = read(typed.value);
        const asked = question.querySelector(".typed span").textContent.toLowerCase();
        const answer = Number(question.dataset.answer);
        // Of "bits", "bit" will do. What is in another unit may be right, and cannot be compared.
        if (Number.isNaN(given)) said.textContent = "Not a number";
        else if (!asked.startsWith(unit)) said.textContent = "Not a number in the unit beside the field";
        else mark(typed, Math.abs(given - answer) <= Math.abs(answer) * Number(question.dataset.tolerance));
    };
    // A field that gets back what it had when it was entered has not changed, for a browser; it is left all the same.
    typed?.addEventListener("input", clear);
    typed?.addEventListener("change", judge);
    typed?.addEventListener("blur", judge);
}

for (const callout of document.querySelectorAll(".predict")) {
    // By what is asked: a guess stays with its question when a page gets another one.
    const asked = [...callout.children].filter(child => child.tagName !== "DETAILS");
    const key = `guess ${asked.map(child => child.textContent).join(" ").replace(/\s+/g, " ").trim()}`;
    const label = document.createElement("label");
    label.className = "guess";
    label.textContent = "Your guess (kept in this browser only)";
    const text = document.createElement("textarea");
    text.rows = 1;
    try { text.value = localStorage.getItem(key) ?? ""; } catch { /* a browser may forbid storage */ }
    text.addEventListener("input", () => { try { localStorage.setItem(key, text.value); } catch { /* as above */ } });
    label.append(text);
    callout.insertBefore(label, callout.querySelector("details"));
}
