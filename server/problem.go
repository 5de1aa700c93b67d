package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"github.com/errand-dev/errand"
)

// ProblemType is the media type of every error that Errand answers (RFC 9457).
const ProblemType = "application/problem+json"

// Problem is the body of an error. It never carries a private cause.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code"`
	Field  string `json:"field,omitempty"` // the input at fault
	Hint   string `json:"hint,omitempty"`  // what to do
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// GetStatus and ContentType make a Problem an error that huma writes as it is.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType gives the media type under which the problem is sent.
func (p *Problem) ContentType(string) string { return ProblemType }

var statusOf = map[errand.Code]int{
	errand.CodeInvalid:         http.StatusUnprocessableEntity,
	errand.CodeUnauthenticated: http.StatusUnauthorized,
	errand.CodeForbidden:       http.StatusForbidden,
	errand.CodeNotFound:        http.StatusNotFound,
	errand.CodeConflict:        http.StatusConflict,
	errand.CodeTooLarge:        http.StatusRequestEntityTooLarge,
	errand.CodeUnsupported:     http.StatusUnsupportedMediaType,
	errand.CodeRateLimited:     http.StatusTooManyRequests,
	errand.CodeUnavailable:     http.StatusServiceUnavailable,
	errand.CodeInternal:        http.StatusInternalServerError,
}

// ToProblem is the one place that turns an error into an HTTP answer. An error without a code is internal, and of an
// internal error the caller learns nothing but that.
func ToProblem(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	var e *errand.Error
	var he *echo.HTTPError
	switch {
	case errors.As(err, &e) && e.Code != errand.CodeInternal:
	case errors.As(err, &he):
		e = fromEcho(he)
	default:
		e = &errand.Error{Code: errand.CodeInternal, Message: "something went wrong on our side; the log holds it under this request's id"}
	}
	status, ok := statusOf[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	if he != nil && he.Code == http.StatusMethodNotAllowed {
		status = he.Code
	}
	return &Problem{
		Type: "urn:errand:problem:" + string(e.Code), Title: http.StatusText(status), Status: status,
		Detail: e.Message, Code: string(e.Code), Field: e.Field, Hint: e.Hint,
	}
}

// asProblem makes what huma itself refuses (a body that is not its schema's) a Problem like every other: with our code, naming
// the field at fault, and without the value that stood there, which may be a secret.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := ToProblem(&echo.HTTPError{Code: m.Status})
	p.Title, p.Status, p.Detail = http.StatusText(m.Status), m.Status, m.Detail
	for i, d := range m.Errors {
		field := strings.TrimPrefix(d.Location, "body.")
		switch {
		case i == 0:
			p.Field, p.Detail = field, d.Message
		case i < 5:
			p.Detail += "; " + field + ": " + d.Message
		}
	}
	return p, nil
}

func fromEcho(he *echo.HTTPError) *errand.Error {
	for code, status := range statusOf {
		if status == he.Code {
			return &errand.Error{Code: code, Message: http.StatusText(status)}
		}
	}
	if he.Code == http.StatusMethodNotAllowed {
		return &errand.Error{Code: errand.CodeUnsupported, Message: "that method is not taken here"}
	}
	if he.Code >= 400 && he.Code < 500 {
		return &errand.Error{Code: errand.CodeInvalid, Message: http.StatusText(he.Code)}
	}
	return &errand.Error{Code: errand.CodeInternal, Message: http.StatusText(he.Code)}
}

// ErrorHandler answers every error that a handler returns, and logs the private part of those that are ours to mend.
func ErrorHandler(log *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		p := ToProblem(err)
		if p.Status >= 500 {
			log.LogAttrs(c.Request().Context(), slog.LevelError, "request failed",
				slog.String("error", err.Error()), slog.String("path", c.Path()), slog.String("request", RequestID(c.Request().Context())))
		}
		if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
			c.Response().Header().Set("Retry-After", "5")
		}
		if c.Request().Method == http.MethodHead {
			_ = c.NoContent(p.Status)
			return
		}
		c.Response().Header().Set(echo.HeaderContentType, ProblemType)
		_ = c.JSON(p.Status, p)
	}
}

type requestIDKey struct{}

// RequestID gives the id of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
