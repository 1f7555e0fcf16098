// Package acptest checks frames against the official ACP schema of either
// version, for tests.
//
// A [Validator] checks one frame: the envelope, and params or result by the
// method. A [Recorder] remembers which requests are open in either direction, so
// that responses are checked by the method they answer, and that none answers
// twice. Extensions, methods that begin with an underscore, may carry anything;
// another method that the schema does not know is an error. Errors name the
// path that failed.
package acptest
