// Tells a reader whether an answer is right, and keeps written predictions in this browser. Without scripts,
// answers are still there to unfold, and steppers still step.

for (const question of document.querySelectorAll(".question")) {
    const details = question.querySelector("details");
    const said = question.querySelector(".said");
    const mark = (element, right) => {
        for (const marked of question.querySelectorAll(".is-right, .is-wrong")) marked.classList.remove("is-right", "is-wrong");
        element.classList.add(right ? "is-right" : "is-wrong");
        said.textContent = right ? "Right" : "Not right";
        if (right) details.open = true;
    };
    for (const radio of question.querySelectorAll("input[type=radio]")) {
        radio.addEventListener("change", () => mark(radio.closest("li"), radio.value === question.dataset.answer));
    }
    const typed = question.querySelector("input[type=text]");
    typed?.addEventListener("change", () => {
        const given = Number(typed.value.replace(/[\s,_]/g, ""));
        if (typed.value.trim() === "") return;
        const answer = Number(question.dataset.answer);
        mark(typed, Math.abs(given - answer) <= Math.abs(answer) * Number(question.dataset.tolerance));
    });
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
