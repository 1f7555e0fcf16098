// Package transcript makes of a session's log what people read and share: a page of
// Markdown, a page of HTML that needs nothing but itself, or one JSON object for each
// thing that was said or done.
//
// [Write] reads events one after the other. A turn is written when it has ended
// and nothing that it asks people is open, so that a tool call stands where it began with what came of it. What would make a page
// too long to read is cut, what looks like a secret is taken out, and the end of the
// page says what is missing.
package transcript
