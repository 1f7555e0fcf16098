import { gateway } from "../state/page.js";
import { useSelected } from "../state/store.js";

const forReading = { disabled: true, title: "Your token is for reading: this needs one with the scope drive" } as const;
const all = {} as { readonly disabled?: boolean; readonly title?: string };

export type Drive = typeof all;

/** What a button or a menu's item is given that changes something: with a hub's token for reading it is disabled and says why. */
export const useDrive = (): Drive => (useSelected(gateway, (g) => g.hub?.scope === "read") ? forReading : all);
