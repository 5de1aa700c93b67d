package errand

import (
	"errors"
	"fmt"
)

// Code is the closed set of what can be wrong. One place (package server) maps it to an HTTP status.
type Code string

// The codes. An error that carries none is Internal.
const (
	CodeInvalid         Code = "invalid"         // the input is wrong; the message says what and how to mend it
	CodeUnauthenticated Code = "unauthenticated" // who is asking is not proven
	CodeForbidden       Code = "forbidden"       // proven, and not allowed
	CodeNotFound        Code = "not_found"       // absent, or not yours: never told apart
	CodeConflict        Code = "conflict"        // the state does not allow it, or somebody was first
	CodeTooLarge        Code = "too_large"       // over a size cap
	CodeUnsupported     Code = "unsupported"     // a media type or method that is not taken
	CodeRateLimited     Code = "rate_limited"    // try again later
	CodeUnavailable     Code = "unavailable"     // something we depend on does not answer
	CodeInternal        Code = "internal"        // a fault of ours
)

// Error is the one error type of Errand. Message (and Field, and Hint) may be shown to whoever asked; Cause is for logs
// only and never leaves the process.
type Error struct {
	Code    Code
	Field   string // the input at fault, when one is: "data.event.event_id"
	Message string // what was wrong
	Hint    string // what to do about it; may be empty
	Cause   error  // private
}

func (e *Error) Error() string {
	s := string(e.Code)
	if e.Field != "" {
		s += ": " + e.Field
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the private cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, &Error{Code: c}) ask for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Field == "" && t.Cause == nil
}

// CodeOf gives the code of err; an error without one is Internal, and nil is "".
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Invalid says that a field of the input is wrong.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// NotFound says that there is no such thing for whoever asked.
func NotFound(what string) *Error { return &Error{Code: CodeNotFound, Message: what + " not found"} }

// Conflict says that the state of things does not allow it.
func Conflict(format string, args ...any) *Error {
	return &Error{Code: CodeConflict, Message: fmt.Sprintf(format, args...)}
}

// Unauthenticated says that the caller did not prove who it is. The cause goes to the log; the caller learns nothing more.
func Unauthenticated(cause error) *Error {
	return &Error{Code: CodeUnauthenticated, Message: "not authenticated", Cause: cause}
}

// Errorf makes an error with a code, a public message and a private cause.
func Errorf(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}
