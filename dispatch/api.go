package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/errand-dev/errand"
)

// maxExplain bounds a request to explain, in bytes: a payload is at most 1 MiB, and a few words stand around it.
const maxExplain = 1<<20 + 4<<10

// APIConfig is what the described API of dispatch is made of.
type APIConfig struct {
	Dispatch *Dispatch
	Payloads Payloads
	// Caller says whose request it is: the organisation of a signed-in person who may see it. It refuses requests that come
	// from another site, and returns Unauthenticated or Forbidden.
	Caller func(huma.Context) (org errand.ID, err error)
	// Problem turns an error into one that huma answers with the right status (server.ToProblem).
	Problem func(error) error
}

// API is the part of /api/v1 that speaks of mappings.
type API struct{ cfg APIConfig }

// NewAPI makes it.
func NewAPI(cfg APIConfig) *API { return &API{cfg} }

type callerKey struct{}

// ExplainRequest asks about an issue, or about a payload as a source would get it.
type ExplainRequest struct {
	Issue    errand.ID       `json:"issue,omitempty" doc:"Id of an issue. Either this or payload."`
	Source   errand.ID       `json:"source,omitempty" doc:"Id of the source that the payload would arrive at."`
	Kind     string          `json:"kind,omitempty" maxLength:"32" doc:"Kind of source, when no source is named." example:"sentry"`
	Resource string          `json:"resource,omitempty" maxLength:"64" doc:"What Sentry says in the header Sentry-Hook-Resource; found out when it is missing." example:"error"`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"The payload, as the tracker sends it."`
}

// sessionScheme names how a signed-in person is known, in the description.
const sessionScheme = "session"

// Register adds the operation.
func (a *API) Register(api huma.API) {
	components := api.OpenAPI().Components
	if components.SecuritySchemes == nil {
		components.SecuritySchemes = map[string]*huma.SecurityScheme{}
	}
	components.SecuritySchemes[sessionScheme] = &huma.SecurityScheme{
		Type: "apiKey", In: "cookie", Name: "errand", Description: "The session cookie of the console. Over https its name is __Host-errand.",
	}
	huma.Register(api, huma.Operation{
		OperationID: "explain-mapping", Method: http.MethodPost, Path: "/api/v1/mappings/explain", Tags: []string{"mappings"},
		Summary:      "Explain which mapping an error takes",
		Description:  "Answers which rule is chosen for an issue or for a pasted payload, or why none is: rule by rule, and frame by frame from the crash outwards. Nothing is stored or started.",
		MaxBodyBytes: maxExplain,
		Errors:       []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity},
		Security:     []map[string][]string{{sessionScheme: {}}},
		Middlewares: huma.Middlewares{func(c huma.Context, next func(huma.Context)) {
			org, err := a.cfg.Caller(c)
			if err != nil {
				a.refuse(c, err)
				return
			}
			next(huma.WithValue(c, callerKey{}, org))
		}},
	}, func(ctx context.Context, in *struct{ Body ExplainRequest }) (*struct{ Body Explanation }, error) {
		org, _ := ctx.Value(callerKey{}).(errand.ID)
		q := Question{Kind: in.Body.Kind, Resource: in.Body.Resource, Payload: in.Body.Payload}
		for _, id := range []struct {
			field string
			given errand.ID
			to    *errand.ID
		}{{"issue", in.Body.Issue, &q.Issue}, {"source", in.Body.Source, &q.Source}} {
			if id.given == "" {
				continue
			}
			parsed, err := errand.ParseID(string(id.given))
			if err != nil {
				return nil, a.cfg.Problem(errand.Invalid(id.field, "is no id: want something like 018f2a3c-..."))
			}
			*id.to = parsed
		}
		x, err := a.cfg.Dispatch.Explain(ctx, org, a.cfg.Payloads, q)
		if err != nil {
			return nil, a.cfg.Problem(err)
		}
		return &struct{ Body Explanation }{x}, nil
	})
}

// refuse answers a request that got no further than its caller.
func (a *API) refuse(c huma.Context, err error) {
	problem, status := a.cfg.Problem(err), http.StatusInternalServerError
	var s huma.StatusError
	if errors.As(problem, &s) {
		status = s.GetStatus()
	}
	c.SetHeader("Content-Type", "application/problem+json")
	c.SetStatus(status)
	_ = json.NewEncoder(c.BodyWriter()).Encode(problem) // nobody is left to tell
}
