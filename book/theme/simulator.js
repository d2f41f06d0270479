// Runs a simulated figure's module whenever a control is moved. Without scripts there is what the first choices come to, and
// the controls stay as the page has them: disabled.

const rows = (body, found) => body.replaceChildren(...found.map(({ name, text }) => {
    const row = document.createElement("tr");
    for (const cell of [name, text]) row.insertCell().textContent = cell;
    return row;
}));

const run = async figure => {
    const encoded = figure.querySelector("script").textContent;
    const bytes = Uint8Array.from(atob(encoded), letter => letter.charCodeAt(0));
    const { instance: { exports } } = await WebAssembly.instantiate(bytes);
    const form = figure.querySelector("form");
    const ask = () => {
        const settings = {};
        for (const select of form.querySelectorAll("select")) settings[select.name] = JSON.parse(select.value);
        const asked = new TextEncoder().encode(JSON.stringify(settings));
        // Memory may grow, and move, with every call: look where it is each time.
        const room = exports.room(asked.length);
        new Uint8Array(exports.memory.buffer, room, asked.length).set(asked);
        const length = exports.ask();
        const told = new Uint8Array(exports.memory.buffer, exports.told(), length);
        const said = JSON.parse(new TextDecoder().decode(told));
        const { roofline, run, problem, memory } = said.Ok ?? { roofline: [], run: [], problem: said.Err, memory: [0, 0] };
        for (const body of figure.querySelectorAll("[data-rows]")) rows(body, body.dataset.rows === "run" ? run : roofline);
        figure.querySelector(".problem").textContent = problem ?? "";
        figure.querySelectorAll(".memory i").forEach((part, i) => { part.style.width = `${Math.min(memory[i], 100)}%`; });
        figure.classList.toggle("is-over", Boolean(problem));
    };
    let soon;
    form.addEventListener("change", () => {
        figure.setAttribute("aria-busy", true);
        clearTimeout(soon);
        // Some answers take a second, in which the page stands still. So it waits for those who go through a list by key, and
        // until it has been painted: what is shown is not the answer yet.
        soon = setTimeout(() => {
            try {
                ask();
            } catch (error) {
                failed(figure, error);
            }
            figure.removeAttribute("aria-busy");
        }, 100);
    });
    figure.querySelector("fieldset").disabled = false;
    ask();
    figure.dataset.runs = "";
};

const failed = (figure, error) => {
    console.error(error);
    figure.querySelector("fieldset").disabled = true;
    figure.querySelector(".problem").textContent =
        "The figure's WebAssembly module does not run in this browser, so nothing can be chosen.";
};

for (const figure of document.querySelectorAll("figure.simulated")) run(figure).catch(error => failed(figure, error));
