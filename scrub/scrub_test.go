package scrub

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/errand-dev/errand"
)

// Secrets are put together at run time, so that no scanner of repositories takes this file for a leak.
var (
	jwtText    = "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	ghp        = "ghp" + "_16C7e42F292c6912E7710c838347Ae178B4a"
	ghsLong    = "ghs" + "_123456_" + jwtText
	pat        = "github" + "_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789"
	awsKey     = "AKIA" + "IOSFODNN7EXAMPLE"
	anthropic  = "sk-" + "ant-api03-AbCdEf0123456789-_AbCdEf0123456789"
	openaiOld  = "sk-" + "AbCdEf0123456789AbCdEf0123456789AbCdEf01"
	openaiProj = "sk-" + "proj-AbCdEf0123456789_AbCdEf0123456789-x"
	google     = "AIza" + "SyA1234567890abcdefghijklmnopqrstuv"
	slack      = "xox" + "b-123456789012-1234567890123-AbCdEfGhIjKlMnOp"
	stripe     = "sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc"
	pem        = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc\n-----END RSA " + "PRIVATE KEY-----"
)

func TestTextRemoves(t *testing.T) {
	t.Parallel()
	s := New()
	for _, tc := range []struct{ name, in, want string }{
		{"a GitHub token", "push with " + ghp + " failed", "push with [removed: github_token] failed"},
		{"a GitHub token at the end of a sentence", "it was " + ghp + ".", "it was [removed: github_token]."},
		{"a GitHub installation token of the new long form", "token is " + ghsLong + ", sir", "token is [removed: github_token], sir"},
		{"a fine-grained GitHub token", pat, "[removed: github_token]"},
		{"a token glued to a word", "x" + ghp, "x[removed: github_token]"},
		{"an AWS access key id", "id " + awsKey + " denied", "id [removed: aws_access_key] denied"},
		{"an AWS secret by its name", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "aws_secret_access_key = [removed: secret]"},
		{"an Anthropic key", "x-api-key " + anthropic + "\n", "x-api-key [removed: anthropic_key]\n"},
		{"an old OpenAI key", "Incorrect API key provided: " + openaiOld, "Incorrect API key provided: [removed: openai_key]"},
		{"an OpenAI project key", "(" + openaiProj + ")", "([removed: openai_key])"},
		{"a Google key", "key " + google + "&x", "key [removed: google_key]&x"},
		{"a Slack token", slack, "[removed: slack_token]"},
		{"a Stripe key", "Invalid API Key provided: " + stripe, "Invalid API Key provided: [removed: stripe_key]"},
		{"a JWT", "jwt " + jwtText + " expired", "jwt [removed: jwt] expired"},
		{"a private key", "got " + pem + " there", "got [removed: private_key] there"},
		{"a private key without its end", "got -----BEGIN " + "PRIVATE KEY-----\nMIIE", "got [removed: private_key]"},
		{"a token after an escaped line break", `line\n` + ghp, `line\n[removed: github_token]`},
		{"an AWS key after an escaped line break", `line\n` + awsKey, `line\n[removed: aws_access_key]`},
		{"an AWS key in a query string", "x=%20" + awsKey, "x=%20[removed: aws_access_key]"},

		{"a bearer header", "Authorization: Bearer abc.def-ghi", "Authorization: Bearer [removed: authorization]"},
		{"a bearer header and what follows", "Authorization: Bearer abcdef failed with 401", "Authorization: Bearer [removed: authorization] failed with 401"},
		{"a basic header", "authorization: Basic dXNlcjpwYXNz", "authorization: Basic [removed: authorization]"},
		{"a digest header, whole", `Authorization: Digest username=Mufasa, response=6629fae49393a05397450978507c4ef1`, "Authorization: Digest [removed: authorization]"},
		{"a header in JSON", `{"Authorization":"Bearer abc123","x":1}`, `{"Authorization":"Bearer [removed: authorization]","x":1}`},
		{"a header without a scheme", "authorization: 0123abc", "authorization: [removed: authorization]"},
		{"a bearer token without its header", "sent Bearer abc123def456", "sent Bearer [removed: authorization]"},
		{"a cookie header to the end of its line", "Cookie: a=1; sid=xyz\nHost: h", "Cookie: [removed: cookie]\nHost: h"},
		{"a session id", "PHPSESSID=abc123; path=/", "PHPSESSID=[removed: cookie]; path=/"},

		{"a password", "password=hunter2 host=db", "password=[removed: password] host=db"},
		{"a password in prose", "password: hunter", "password: [removed: password]"},
		{"a password in JSON", `{"password": "hunter two", "user": 1}`, `{"password": "[removed: password]", "user": 1}`},
		{"a password in JSON inside JSON", `"{\"password\":\"hunter two\",\"u\":1}"`, `"{\"password\":\"[removed: password]\",\"u\":1}"`},
		{"a password with an escaped quote", `password="a\"b" x`, `password="[removed: password]" x`},
		{"a password in Ruby", `{:password=>"s3cret"}`, `{:password=>"[removed: password]"}`},
		{"a password in a form", "user[password]=x1&b=2", "user[password]=[removed: password]&b=2"},
		{"an environment variable", "DB_PASSWORD=abc STRIPE_SECRET_KEY='x y'", "DB_PASSWORD=[removed: password] STRIPE_SECRET_KEY='[removed: secret]'"},
		{"a key in camel case", `clientSecret: "abc"`, `clientSecret: "[removed: secret]"`},
		{"a token in a query string", "GET /x?access_token=abc&b=1", "GET /x?access_token=[removed: secret]&b=1"},
		{"a short assignment in Go", `apiKey := "abc"`, `apiKey := "[removed: secret]"`},
		{"a password in a connection string", "Server=db;Pwd=s3;Timeout=5", "Server=db;Pwd=[removed: password];Timeout=5"},
		{"a weak word with a value that looks secret", "token: a1b2c3d4e5", "token: [removed: secret]"},

		{"the user of a URL", "postgres://app:s3cr3t@db:5432/x failed", "postgres://[removed: url_credentials]@db:5432/x failed"},
		{"a password with an @ in a URL", "redis://u:p@ss@h/0", "redis://[removed: url_credentials]@h/0"},
		{"a DSN", "https://abc@o1.ingest.example.io/2", "https://[removed: url_credentials]@o1.ingest.example.io/2"},

		{"an e-mail address", "no user jane.doe+x@mail.example.com.", "no user [removed: email]."},
		{"an e-mail address in brackets", "<a@example.org>", "<[removed: email]>"},
		{"an e-mail address under a country that is a file ending", "a@firma.rs", "[removed: email]"},
		{"an IPv4 address", "connect 203.0.113.7:5432 refused", "connect [removed: ip_address]:5432 refused"},
		{"an IPv4 address as Java prints it", "cache/10.0.0.7:6379", "cache/[removed: ip_address]:6379"},
		{"an IPv4 address in a URL", "http://10.1.2.3/x", "http://[removed: ip_address]/x"},
		{"an IPv4 range", "10.0.0.1-10.0.0.9", "[removed: ip_address]-[removed: ip_address]"},
		{"an IPv4 address after a key", "ip=10.0.0.1", "ip=[removed: ip_address]"},
		{"an IPv6 address", "from 2001:db8::8a2e:370:7334 port", "from [removed: ip_address] port"},
		{"an IPv6 address in a URL", "http://[fe80::1]:80/", "http://[[removed: ip_address]]:80/"},
		{"a card number", "card 4111111111111111 declined", "card [removed: card_number] declined"},
		{"a card number in groups", "4111 1111 1111 1111", "[removed: card_number]"},
		{"a card number with dashes", "5500-0000-0000-0004.", "[removed: card_number]."},
		{"two of a kind side by side", ghp + "," + ghp, "[removed: github_token],[removed: github_token]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, removed := s.Text("message", tc.in)
			if got != tc.want {
				t.Errorf("\n in  %q\n got %q\nwant %q", tc.in, got, tc.want)
			}
			if len(removed) == 0 || removed[0].Path != "message" || !strings.Contains(got, "[removed: "+removed[0].Kind+"]") {
				t.Errorf("recorded %v", removed)
			}
			if again, more := s.Text("message", got); again != got || len(more) != 0 {
				t.Errorf("not idempotent: %q", again)
			}
		})
	}
}

func TestTextKeeps(t *testing.T) {
	t.Parallel()
	s := New()
	for _, text := range []string{
		"", "checkout/views.py", "/srv/app/checkout/views.py:42:7", "C:\\app\\views.py", "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
		"app.checkout.views.CheckoutView.post", "std::vector<int>::at", "Face::Cafe", "Token::parse", "A1::B2", "user_token_count", "set_password",
		"https://unpkg.com/@scope/pkg@1.2.3/index.js", "webpack-internal:///./src/app.ts", "webpack://app@1.0/./src/x.ts", "git@github.com:o/r.git",
		"node_modules/.pnpm/react-dom@18.2.0_react@18.2.0/node_modules/react-dom/cjs/react-dom.production.min.js",
		"pkg@1.0.0-beta.next", "golang.org/x/net@v0.62.0/http2/server.go", "logo@2x.png", "@app.route", "user@localhost",
		"1.42.0", "v1.2.3.4", "1.2.3.4.5", "app 1.2.3.4-beta", "libfoo-1.2.3.4.jar", "Version=4.0.0.0, Culture=neutral", "version 10.0.0.1",
		"requires foo>=1.2.3.4", "foo==1.2.3.4", "foo ~1.2.3.4", "Chrome/120.0.0.0 Safari/537.36", "release: 10.0.0.1", "300.1.1.1",
		"127.0.0.1:8080", "0.0.0.0", "[::1]:80", "::", "12:34:56", "2026-12-01T12:34:56.789Z", "00:1a:2b:3c:4d:5e",
		"id 1700000000000", "4111111111111112", "0.4111111111111111", "issues/4111111111111111/", "0190f3a2-7c1d-7e52-9b0a-3f6f2f1f0a11",
		"deadbeefdeadbeefdeadbeefdeadbeefdeadbeef", "Unexpected token: string", "Unexpected token = in JSON", "SyntaxError: Unexpected token '}'",
		"if password == nil", "password != other", "password=null", "password: ***", `"token": null`, "PWD=/srv/app", "max_tokens=100", "author=jane",
		"berlin_api_of_a_function_with_a_long_name", "rubygems_install_with_a_function_name_of_that_length", "user_credentials: none were given", "SKU-123456789012345678901234567890123",
		"EAAAuthenticationFailedBecauseOfTheProvider", "hf_download_a_model_with_a_long_long_name", "hvs.internal.example.com", "glft-some-words-joined-by-dashes",
		"Bearer authentication failed", "Basic authentication required", "sk-loading-indicator-container-large", "task-AbCdEf0123456789AbCdEf", "AKIAnotakey",
		"-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----", "eyJust.a.word", "password=[removed: password]", "[Filtered]", "compass: north", "bypass=1",
		"KeyError: 'total'", "a=b", ":", "=", "@", "://", "x://@", "password=", "password:", "Cookie:", "é@é.é",
	} {
		if got, removed := s.Text("message", text); got != text || removed != nil {
			t.Errorf("%q became %q (%v)", text, got, removed)
		}
	}
}

func TestFindSecrets(t *testing.T) {
	t.Parallel()
	s := New()
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"a token in code", `client = Client("` + ghp + `")`, []string{KindGitHub}},
		{"the first line of a private key", "-----BEGIN " + "PRIVATE KEY-----", []string{KindPrivateKey}},
		{"a literal password", `password = "Tr0ub4dor&3"`, []string{KindPassword}},
		{"an environment file", "API_KEY=a1b2c3d4e5f6", []string{KindSecret}},
		{"a URL with a password", `"postgres://u:p@h/d"`, []string{KindURL}},
		{"two", awsKey + " " + jwtText, []string{KindAWS, KindJWT}},
		{"a password that is read", `password = os.environ["DB_PASSWORD"]`, nil},
		{"a type", "def f(password: str, token: Optional[str] = None):", nil},
		{"a variable", "token = request.headers.get('x-token1234')", nil},
		{"a placeholder", `API_KEY="your-api-key-1"`, nil},
		{"a template", `password = "${DB_PASSWORD1}"`, nil},
		{"a path", `secret = "/run/secrets/db1"`, nil},
		{"an e-mail address is no secret", `"jane@example.com", "10.0.0.1", 4111111111111111`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, h := range s.FindSecrets(tc.text) {
				got = append(got, h.Kind)
				if h.Offset < 0 || h.Offset >= len(tc.text) {
					t.Errorf("offset %d", h.Offset)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q: %v, want %v", tc.text, got, tc.want)
			}
		})
	}
}

func TestEventAndIssue(t *testing.T) {
	t.Parallel()
	s := New()
	e := errand.Event{
		Release: "shop@10.0.0.1", Message: "for jane@example.com from 203.0.113.7", Transaction: "/orders?token=abc",
		Tags: []errand.Tag{{Key: "user.email", Value: "whatever"}, {Key: "api_key", Value: "abc"}, {Key: "browser", Value: "Chrome 120"}, {Key: "user", Value: "id:1"}},
		Exceptions: []errand.Exception{{Type: "KeyError", Value: "token " + ghp, Frames: []errand.Frame{
			{Filename: "checkout/views.py", AbsPath: "/srv/10.0.0.1/checkout/views.py", Function: "set_password"},
			{Filename: "https://u:p@cdn.example.com/a.js"},
		}}},
		Removed: []errand.Removal{{Path: "request", Kind: "dropped"}},
	}
	s.Event(&e)
	want := errand.Event{
		Release: "shop@10.0.0.1", Message: "for [removed: email] from [removed: ip_address]", Transaction: "/orders?token=[removed: secret]",
		Tags: []errand.Tag{
			{Key: "user.email", Value: "[removed: user]"},
			{Key: "api_key", Value: "[removed: secret]"},
			{Key: "browser", Value: "Chrome 120"},
			{Key: "user", Value: "[removed: user]"},
		},
		Exceptions: []errand.Exception{{Type: "KeyError", Value: "token [removed: github_token]", Frames: []errand.Frame{
			{Filename: "checkout/views.py", AbsPath: "/srv/10.0.0.1/checkout/views.py", Function: "set_password"},
			{Filename: "https://[removed: url_credentials]@cdn.example.com/a.js"},
		}}},
		Removed: []errand.Removal{
			{Path: "request", Kind: "dropped"},
			{Path: "transaction", Kind: KindSecret},
			{Path: "message", Kind: KindEmail},
			{Path: "message", Kind: KindIP},
			{Path: "tags[0].value", Kind: KindUser},
			{Path: "tags[1].value", Kind: KindSecret},
			{Path: "tags[3].value", Kind: KindUser},
			{Path: "exceptions[0].value", Kind: KindGitHub},
			{Path: "exceptions[0].frames[1].filename", Kind: KindURL},
		},
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("got  %+v\nwant %+v", e, want)
	}
	s.Event(&e)
	if !reflect.DeepEqual(e, want) {
		t.Errorf("a second time changed it: %+v", e)
	}

	i := errand.Issue{Title: "no " + ghp, Culprit: "checkout/views.py in post", Link: "https://t.example.com/issues/4111111111111111/?token=abc"}
	removed := s.Issue(&i)
	if i.Title != "no [removed: github_token]" || i.Culprit != "checkout/views.py in post" || i.Link != "https://t.example.com/issues/4111111111111111/?token=[removed: secret]" {
		t.Errorf("issue %+v", i)
	}
	if !slices.Equal(removed, []errand.Removal{{Path: "issue.title", Kind: KindGitHub}, {Path: "issue.link", Kind: KindSecret}}) {
		t.Errorf("removed %v", removed)
	}
}

// Every string field of the normalised types must be handled: a field that somebody adds later fails here.
func TestNoStringFieldIsForgotten(t *testing.T) {
	t.Parallel()
	var e errand.Event
	var i errand.Issue
	e.Tags = make([]errand.Tag, 1)
	e.Exceptions = []errand.Exception{{Frames: make([]errand.Frame, 1)}}
	fill := func(v reflect.Value) {
		var walk func(reflect.Value)
		walk = func(v reflect.Value) {
			switch v.Kind() {
			case reflect.String:
				v.SetString("x " + ghp)
			case reflect.Slice:
				for k := range v.Len() {
					walk(v.Index(k))
				}
			case reflect.Struct:
				for k := range v.NumField() {
					if v.Type().Field(k).IsExported() {
						walk(v.Field(k))
					}
				}
			}
		}
		walk(v)
	}
	fill(reflect.ValueOf(&e).Elem())
	fill(reflect.ValueOf(&i).Elem())
	s := New()
	s.Event(&e)
	s.Issue(&i)
	e.Removed = nil
	var check func(path string, v reflect.Value)
	check = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			if strings.Contains(v.String(), ghp) {
				t.Errorf("%s is not scrubbed", path)
			}
		case reflect.Slice:
			for k := range v.Len() {
				check(path, v.Index(k))
			}
		case reflect.Struct:
			for k := range v.NumField() {
				if f := v.Type().Field(k); f.IsExported() {
					check(path+"."+f.Name, v.Field(k))
				}
			}
		}
	}
	check("event", reflect.ValueOf(e))
	check("issue", reflect.ValueOf(i))
}

// A text of working directories must be read once, not once for each of them.
func TestManyWorkingDirectoriesAreReadInOnePass(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("pwd=/", 200_000)
	done := make(chan string, 1)
	go func() { clean, _ := New().Text("message", text); done <- clean }()
	select {
	case clean := <-done:
		if clean != text {
			t.Error("a working directory was taken for a password")
		}
	case <-time.After(30 * time.Second): // it takes milliseconds; reading to the end each time takes minutes
		t.Fatal("1 MB was not read in 30 s")
	}
}
