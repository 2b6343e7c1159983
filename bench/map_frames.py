"""Work of the browser's main thread for a frame of the fleet map with 10,000 nodes."""

import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from bench import scene
from bench.result import Result, percentile, scaled
from tests.browser.pages import ARGUMENTS, CHROMIUM
from tests.story import product as products

NODES = 10_000
FRAMES = 200
WARM_UP = 20
GOAL = "≤ 16 ms"
# Does one act per frame. A frame's work is the time from its start until the task after its rendering.
MEASURE = """async ([act, frames]) => {
  const map = document.querySelector("fleet-map");
  const other = (all, state, at) => (at % 7 ? all : `,${(Number(state) + 1) % 10},8]`);
  const texts = [map.text, map.text.replace(/,(\\d+),8\\]/g, other)];
  const middle = map.places.tiles.length >> 1;
  const acts = {
    scroll: (n) => {
      map.view.scrollTop = (n * 61) % Math.max(1, map.places.height - map.view.clientHeight);
      map.draw();
    },
    pointer: (n) => map.hover({ offsetX: (n * 37) % map.clientWidth, offsetY: (n * 29) % map.view.clientHeight }),
    keys: (n) => map.point((middle + n) % map.places.tiles.length, true),
    update: () => {
      if (!map.reading && !map.frame) map.take(texts[(taken += 1) % 2]);
    },
    filter: (n) => { map.controls.elements.find.value = n % 2 ? "1" : "2"; map.count(); map.draw(); },
  };
  const times = [];
  let taken = 0;
  for (let n = 0; n < frames; n += 1) {
    times.push(await new Promise((resolve) => requestAnimationFrame(() => {
      const began = performance.now();
      const after = new MessageChannel();
      after.port1.onmessage = () => resolve(performance.now() - began);
      acts[act](n);
      if (map.step) {
        cancelAnimationFrame(map.step);
        map.work();
      }
      if (map.frame) { // else the canvas stays as it is
        cancelAnimationFrame(map.frame);
        map.frame = null;
        map.paint();
      }
      after.port2.postMessage(0);
    })));
  }
  return times;
}"""
ACTS = {
    "scroll": "scroll",
    "pointer": "move the pointer",
    "keys": "move by keys",
    "filter": "change the filter",
    "update": "take an answer with other states",
}


def measure(scale: float) -> Result:
    """Frames of each act at the zoom that shows the whole fleet, and at the next one, which shows each GPU."""
    nodes = scaled(NODES, scale, least=10)
    frames, warm_up = scaled(FRAMES, scale, least=2), scaled(WARM_UP, scale, least=1)
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        product.names = ["web"]
        product.manage_all([["migrate", "--verbosity", "0"], product.anna()])
        product.start_processes()
        scene.fill(product, nodes)
        found = CHROMIUM if CHROMIUM.exists() else None
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path=found, args=ARGUMENTS) as browser,
        ):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            _sign_in(page, product.url)
            for by, zoom in (("pool", 0), ("rack", 0), ("rack", 3)):
                page.goto(f"{product.url}/?by={by}&zoom={zoom}")
                page.wait_for_function("() => document.querySelector('fleet-map').places?.boxes")
                for act, label in ACTS.items():
                    times = page.evaluate(MEASURE, [act, warm_up + frames])[warm_up:]
                    name = f"by {by}, {'a mark a node' if zoom == 0 else 'each GPU'}: {label}"
                    rows.append((f"{name}, P95", f"{percentile(times, 0.95):.1f} ms", GOAL))
            rows.append(("version of Chromium", browser.version, ""))
    return Result(
        name="Frames of the fleet map",
        command="make bench ARGS=map-frames",
        conditions=f"{nodes:,} nodes x 8 GPUs in 12 pools and racks of 8; headless Chromium without a GPU, 1440 x 900; "
        f"{frames} frames of each act. The time of a frame is scripts, style, layout, paint and the raster of the "
        "canvas on the main thread. An update changes the state of a seventh of the nodes.",
        rows=rows,
    )


def _sign_in(page: Page, url: str) -> None:
    page.goto(f"{url}/sign-in/")
    page.get_by_label("User").fill("anna")
    page.get_by_label("Password").fill(products.PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(lambda url: "/sign-in/" not in url)
