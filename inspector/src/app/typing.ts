import { useSyncExternalStore } from "react";

const subscribe = (told: () => void) => {
  document.addEventListener("focusin", told);
  document.addEventListener("focusout", told);
  return () => {
    document.removeEventListener("focusin", told);
    document.removeEventListener("focusout", told);
  };
};

/** Whether what is typed goes into a text, so that letters are no shortcuts. */
export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) && !(target instanceof HTMLInputElement && /^(checkbox|radio|button)$/.test(target.type));
}

export const useTyping = (): boolean => useSyncExternalStore(subscribe, () => isTyping(document.activeElement));
