// Package credentials finds the keys and logins that coding agents use: in
// environment variables, and in the files that agents keep in the home directory.
// It only reads. Nothing is sent anywhere, and nobody is asked whether a key
// still works.
//
// # Guarantees
//
// A value is only in [Credential.Value]; errors and other fields never hold one.
// A file that cannot be read or understood is a [Problem], never a reason to
// leave the others out. Files are read up to a bound.
package credentials
