// One WebSocket for all live views of a page. Closed while the page is hidden, opened again after a
// failure; each subscription is sent again with the position that it reached.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

class LiveSocket {
  constructor() {
    this.socket = null;
    this.subscriptions = new Map(); // by name
    this.wait_ms = FIRST_WAIT_MS;
    this.timer = 0;
    this.state = "idle";
    this.listeners = new Set();
    document.addEventListener("visibilitychange", () => this.settle());
  }

  /**
   * @param {string} name
   * @param {{request: () => object, onMessage: (message: any) => void, onState?: (state: string) => void}} subscription
   *   `request` is called for each connection, so it may name the position reached
   * @param {AbortSignal} signal
   */
  subscribe(name, subscription, signal) {
    this.subscriptions.set(name, subscription);
    signal.addEventListener("abort", () => this.unsubscribe(name, subscription));
    if (this.socket?.readyState === WebSocket.OPEN) this.send({ subscribe: name, ...subscription.request() });
    this.settle();
    subscription.onState?.(this.state);
  }

  unsubscribe(name, subscription) {
    if (this.subscriptions.get(name) !== subscription) return;
    this.subscriptions.delete(name);
    this.send({ unsubscribe: name });
    this.settle();
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** Opens or closes the connection as it is needed. */
  settle() {
    const wanted = this.subscriptions.size > 0 && !document.hidden;
    if (wanted && !this.socket && !this.timer) this.open();
    if (!wanted) this.close();
  }

  open() {
    this.timer = 0;
    if (this.subscriptions.size === 0 || document.hidden) return;
    this.become("connecting");
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/console/live`);
    this.socket = socket;
    socket.addEventListener("open", () => {
      this.wait_ms = FIRST_WAIT_MS;
      for (const [name, { request }] of this.subscriptions) this.send({ subscribe: name, ...request() });
      this.become("live");
    });
    socket.addEventListener("message", (event) => {
      const message = JSON.parse(event.data);
      this.subscriptions.get(message.name ?? message.type)?.onMessage(message);
    });
    socket.addEventListener("close", () => this.onClose(socket));
  }

  onClose(socket) {
    if (this.socket !== socket) return;
    this.socket = null;
    this.become("connecting");
    this.timer = setTimeout(() => this.open(), this.wait_ms);
    this.wait_ms = Math.min(this.wait_ms * 2, LONGEST_WAIT_MS);
  }

  close() {
    clearTimeout(this.timer);
    this.timer = 0;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.become("idle");
  }

  become(state) {
    if (this.state === state) return;
    this.state = state;
    for (const { onState } of this.subscriptions.values()) onState?.(state);
    for (const listener of this.listeners) listener(state);
  }
}

export const live = new LiveSocket();
