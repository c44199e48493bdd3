// Browsers start no worker from a file. So that search works in a folder, without a server, the worker's script runs in a
// hidden frame instead, and messages go there and back as events.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = this.inside.document.createElement("script");
    this.isReady = new Promise((resolve) => script.addEventListener("load", resolve));
    script.src = new URL(url, location.href);
    this.inside.document.body.append(script);
  }

  postMessage(data) {
    this.isReady.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
