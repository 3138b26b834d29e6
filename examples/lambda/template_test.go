package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sqlimit/limiter/internal/testenv"
)

// maxConnections is PostgreSQL's default, less 3 connections for superusers and 10 for people.
const maxConnections = 100 - 3 - 10

// slowest is the time to connect, and to decide for each limiter of the route with the most of them.
func slowest() time.Duration { return connectTimeout + time.Duration(len(byAddress))*storeTimeout }

// read parses a YAML file. The value of a tag of CloudFormation, such as !Ref, is its text.
func read(t *testing.T, file string) (v map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	text = regexp.MustCompile(`!(Ref|Sub) `).ReplaceAll(text, nil)
	must(t, yaml.Unmarshal(text, &v))
	return v
}

// at returns the value at a path of names in v. A list stands for its only element.
func at[T any](t *testing.T, v any, path string) T {
	t.Helper()
	for name := range strings.SplitSeq(path, ".") {
		if list, ok := v.([]any); ok && len(list) == 1 {
			v = list[0]
		}
		fields, _ := v.(map[string]any)
		v = fields[name]
	}
	value, ok := v.(T)
	if !ok {
		t.Fatalf("%s is %v, want a %T", path, v, value)
	}
	return value
}

// template returns the names of the parameters of template.yaml, and its function.
func template(t *testing.T) (parameters []string, function map[string]any) {
	t.Helper()
	file := read(t, "template.yaml")
	f := at[map[string]any](t, file, "Resources.Limiter")
	if f["Type"] != "AWS::Serverless::Function" || file["Transform"] != "AWS::Serverless-2016-10-31" {
		t.Fatalf("the template has %+v, want a SAM function", file)
	}
	return slices.Collect(maps.Keys(at[map[string]any](t, file, "Parameters"))), f
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	parameters, f := template(t)
	architectures := at[[]any](t, f, "Properties.Architectures")
	if at[string](t, f, "Properties.Runtime") != "provided.al2023" || at[string](t, f, "Properties.Handler") != "bootstrap" ||
		!slices.Equal(architectures, []any{"arm64"}) || !at[bool](t, f, "Metadata.SkipBuild") {
		t.Errorf("the function is %+v", f)
	}
	references := []string{at[string](t, f, "Properties.VpcConfig.SubnetIds"), at[string](t, f, "Properties.VpcConfig.SecurityGroupIds")}
	for name, value := range at[map[string]any](t, f, "Properties.Environment.Variables") {
		if !slices.Contains(variables(t), name) {
			t.Errorf("the program does not read %s; it reads %v", name, variables(t))
		}
		for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(fmt.Sprint(value), -1) {
			references = append(references, m[1])
		}
	}
	for _, name := range references {
		if !slices.Contains(parameters, name) {
			t.Errorf("the template refers to %s; the parameters are %v", name, parameters)
		}
	}
	if at[string](t, f, "Properties.Environment.Variables.DATABASE_URL") == "" {
		t.Error("no DATABASE_URL: on SQLite every instance has limits of its own")
	}
	sweeps := false
	for name, e := range at[map[string]any](t, f, "Properties.Events") {
		kind := at[string](t, e, "Type") // TestProgram has events of these types
		if !slices.Contains([]string{"HttpApi", "Api", "ScheduleV2", "Schedule"}, kind) {
			t.Errorf("event %s: the program does not know the type %s", name, kind)
		}
		if properties, _ := e.(map[string]any)["Properties"].(map[string]any); properties["Input"] != nil {
			t.Errorf("event %s: with an input of its own the program does not know the event", name)
		}
		sweeps = sweeps || strings.HasPrefix(kind, "Schedule")
	}
	testenv.Equal(t, sweeps, true, "an event starts a sweep")
	if timeout := time.Duration(at[int](t, f, "Properties.Timeout")) * time.Second; timeout <= slowest() || timeout <= sweepMargin {
		t.Errorf("the timeout of the function is %v; a response can take %v", timeout, slowest())
	}
	config, err := poolConfig(settings{databaseURL: "host=localhost", inLambda: true})
	must(t, err)
	if n := at[int](t, f, "Properties.ReservedConcurrentExecutions") * int(config.MaxConns); n == 0 || n > maxConnections {
		t.Errorf("%d connections of all instances, of %d", n, maxConnections)
	}
}

func TestService(t *testing.T) {
	t.Parallel()
	file := read(t, "service.yaml")
	if file["apiVersion"] != "serving.knative.dev/v1" || file["kind"] != "Service" {
		t.Fatalf("the file has %+v, want a service", file)
	}
	revision := at[map[string]any](t, file, "spec.template.spec")
	seconds := func(path string) time.Duration { return time.Duration(at[int](t, revision, path)) * time.Second }
	env := map[string]any{}
	for _, v := range at[[]any](t, revision, "containers.env") {
		name := at[string](t, v, "name")
		if !slices.Contains(variables(t), name) {
			t.Errorf("the program does not read %s; it reads %v", name, variables(t))
		}
		if env[name] = v.(map[string]any)["value"]; env[name] == nil {
			env[name] = at[string](t, v, "valueFrom.secretKeyRef.name")
		}
	}
	// One proxy is in front, and Cloud Run sets PORT.
	testenv.Equal(t, env, map[string]any{"DATABASE_URL": "limiter-database-url", "TRUSTED_HOPS": "1"}, "the environment")
	testenv.Equal(t, at[int](t, revision, "containers.startupProbe.httpGet.port"), at[int](t, revision, "containers.ports.containerPort"), "the port of the probe")
	probed := at[string](t, revision, "containers.startupProbe.httpGet.path")
	testenv.Equal(t, send(service(t, settings{}), "@", http.MethodGet, probed, "").Code, http.StatusNoContent, "the path of the probe")
	timeout, period := seconds("containers.startupProbe.timeoutSeconds"), seconds("containers.startupProbe.periodSeconds")
	if timeout <= healthTimeout || period < timeout {
		t.Errorf("the probe has %v, every %v; a check can take %v", timeout, period, healthTimeout)
	}
	if timeout := seconds("timeoutSeconds"); timeout <= slowest() {
		t.Errorf("the timeout of a request is %v; a response can take %v", timeout, slowest())
	}
	// Cloud Run kills a container 10 s after SIGTERM.
	if drainTimeout+healthTimeout > 10*time.Second {
		t.Errorf("draining can take %v; Cloud Run kills the process after 10 s", drainTimeout)
	}
	// Concurrent requests share the connections of an instance. 100 ms for two decisions is a lot.
	concurrency := at[int](t, revision, "containerConcurrency")
	if wait := time.Duration(concurrency) * 100 * time.Millisecond / serverConns; wait == 0 || wait > storeTimeout {
		t.Errorf("the last of %d concurrent requests waits %v for a connection", concurrency, wait)
	}
	annotations := at[map[string]any](t, file, "spec.template.metadata.annotations")
	var instances int
	if _, err := fmt.Sscan(fmt.Sprint(annotations["autoscaling.knative.dev/maxScale"]), &instances); err != nil || instances*serverConns > maxConnections {
		t.Errorf("%d instances (%v) have %d connections, of %d", instances, err, instances*serverConns, maxConnections)
	}
}

func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	parameters, f := template(t)
	readme, err := os.ReadFile("README.md")
	must(t, err)
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	must(t, err)
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(readme), "\\\n", " ")), " ")
	index := func(part string) int {
		i := strings.Index(text, part)
		if i < 0 {
			t.Errorf("README.md does not have %q", part)
		}
		return i
	}
	target := "-o examples/lambda/" + path.Join(at[string](t, f, "Properties.CodeUri"), at[string](t, f, "Properties.Handler"))
	goose := index("goose -dir migrations/postgres -table public.limiter_goose_version postgres \"$DIRECT_URL\" up")
	bootstrap := index("CGO_ENABLED=0 GOOS=linux GOARCH=" + at[[]any](t, f, "Properties.Architectures")[0].(string) +
		" go build -tags lambda.norpc -trimpath -ldflags=\"-s -w\" " + target + " ./examples/lambda")
	deploy := index("sam deploy --template-file examples/lambda/template.yaml")
	replace := index("gcloud run services replace")
	if goose > bootstrap || bootstrap > deploy || goose > replace {
		t.Errorf("the tables come first (%d), then the build (%d), then the commands that need them (%d, %d)", goose, bootstrap, deploy, replace)
	}
	index("github.com/pressly/goose/v3/cmd/goose@" + regexp.MustCompile(`pressly/goose/v3 (\S+)`).FindStringSubmatch(string(mod))[1] + " ")
	for _, p := range parameters {
		if !strings.Contains(text[max(0, deploy):], p+"=") {
			t.Errorf("sam deploy does not set the parameter %s", p)
		}
	}
}
