import { IconButton } from "../kit/controls.js";
import { toasts } from "../state/page.js";
import { useStore } from "../state/store.js";

export function ToastList() {
  const all = useStore(toasts);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {all.map((toast) => (
        <div key={toast.id} className={`toast ${toast.tone}`}>
          <span>{toast.text}{toast.href !== undefined && <> <a href={toast.href} onClick={() => toasts.dismiss(toast.id)}>Show it</a></>}</span>
          <IconButton label="Dismiss" icon="close" size={14} onClick={() => toasts.dismiss(toast.id)} />
        </div>
      ))}
    </div>
  );
}
