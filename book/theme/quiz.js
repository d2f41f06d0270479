// Tells a reader whether an answer is right, and keeps written predictions in this browser. Without scripts,
// answers are still there to unfold, and steppers still step.

for (const question of document.querySelectorAll(".question")) {
    const details = question.querySelector("details");
    const mark = (element, right) => {
        for (const marked of question.querySelectorAll(".is-right, .is-wrong")) marked.classList.remove("is-right", "is-wrong");
        element.classList.add(right ? "is-right" : "is-wrong");
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

document.querySelectorAll(".predict").forEach((callout, index) => {
    const key = `guess ${location.pathname} ${index}`;
    const label = document.createElement("label");
    label.className = "guess";
    label.textContent = "Your guess (kept in this browser only)";
    const text = document.createElement("textarea");
    text.rows = 1;
    try { text.value = localStorage.getItem(key) ?? ""; } catch { /* a browser may forbid storage */ }
    text.addEventListener("input", () => { try { localStorage.setItem(key, text.value); } catch { /* as above */ } });
    // mdBook turns pages on arrow keys; not while someone writes.
    text.addEventListener("keydown", event => event.stopPropagation());
    label.append(text);
    callout.insertBefore(label, callout.querySelector("details"));
});

for (const input of document.querySelectorAll(".typed input, .stepper input")) input.addEventListener("keydown", event => event.stopPropagation());
