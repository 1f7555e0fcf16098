import { useSelected } from "../state/store.js";
import { noDraft, type Conversation, type Draft } from "./conversation.js";

/** What is being written for a session. */
export const useDraft = (conversation: Conversation): Draft => useSelected(conversation.drafts, (all) => all.get(conversation.id) ?? noDraft);
