package main

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxConnections is PostgreSQL's default max_connections, less 3 connections reserved for
// superusers and 10 for people.
const maxConnections = 100 - 3 - 10

// slowest returns the longest time to a response: the program connects, and the route with
// the most limiters makes a decision for each.
func slowest() time.Duration { return connectTimeout + time.Duration(len(byAddress))*storeTimeout }

// samFunction keeps scalars with the tags !Sub and !Ref of CloudFormation as nodes.
type samFunction struct {
	Type     string `yaml:"Type"`
	Metadata struct {
		SkipBuild bool `yaml:"SkipBuild"`
	} `yaml:"Metadata"`
	Properties struct {
		CodeURI                      string   `yaml:"CodeUri"`
		Handler                      string   `yaml:"Handler"`
		Runtime                      string   `yaml:"Runtime"`
		Architectures                []string `yaml:"Architectures"`
		MemorySize                   int      `yaml:"MemorySize"`
		Timeout                      int      `yaml:"Timeout"`
		ReservedConcurrentExecutions int      `yaml:"ReservedConcurrentExecutions"`
		VpcConfig                    struct {
			SubnetIDs        yaml.Node `yaml:"SubnetIds"`
			SecurityGroupIDs yaml.Node `yaml:"SecurityGroupIds"`
		} `yaml:"VpcConfig"`
		Environment struct {
			Variables map[string]yaml.Node `yaml:"Variables"`
		} `yaml:"Environment"`
		Events map[string]struct {
			Type       string         `yaml:"Type"`
			Properties map[string]any `yaml:"Properties"`
		} `yaml:"Events"`
	} `yaml:"Properties"`
}

// template parses template.yaml. Unknown fields fail the test.
func template(t *testing.T) (parameters []string, function samFunction) {
	t.Helper()
	var file struct {
		Version     string                 `yaml:"AWSTemplateFormatVersion"`
		Transform   string                 `yaml:"Transform"`
		Description string                 `yaml:"Description"`
		Parameters  map[string]any         `yaml:"Parameters"`
		Resources   map[string]samFunction `yaml:"Resources"`
		Outputs     map[string]struct {
			Value yaml.Node `yaml:"Value"`
		} `yaml:"Outputs"`
	}
	decode(t, "template.yaml", &file)
	f, ok := file.Resources["Limiter"]
	if !ok || len(file.Resources) != 1 || f.Type != "AWS::Serverless::Function" || file.Transform != "AWS::Serverless-2016-10-31" {
		t.Fatalf("the template has %+v, want one SAM function", file.Resources)
	}
	for name := range file.Parameters {
		parameters = append(parameters, name)
	}
	return parameters, f
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	parameters, f := template(t)
	p := f.Properties
	if p.Runtime != "provided.al2023" || p.Handler != "bootstrap" || !slices.Equal(p.Architectures, []string{"arm64"}) || !f.Metadata.SkipBuild {
		t.Errorf("the function is %+v", f)
	}
	for name, value := range p.Environment.Variables {
		if !slices.Contains(variables(t), name) {
			t.Errorf("the program does not read %s; it reads %v", name, variables(t))
		}
		for _, m := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(value.Value, -1) {
			if !slices.Contains(parameters, m[1]) {
				t.Errorf("%s refers to %s; the parameters are %v", name, m[1], parameters)
			}
		}
	}
	if p.Environment.Variables["DATABASE_URL"].Value == "" {
		t.Error("no DATABASE_URL: on SQLite every instance has limits of its own")
	}
	for _, ref := range []string{p.VpcConfig.SubnetIDs.Value, p.VpcConfig.SecurityGroupIDs.Value} {
		if !slices.Contains(parameters, ref) {
			t.Errorf("VpcConfig refers to %s; the parameters are %v", ref, parameters)
		}
	}
	if timeout := time.Duration(p.Timeout) * time.Second; timeout <= slowest() || timeout <= sweepMargin {
		t.Errorf("the timeout of the function is %v; a response can take %v", timeout, slowest())
	}
	config, err := poolConfig(settings{databaseURL: "host=localhost", inLambda: true})
	must(t, err)
	if n := p.ReservedConcurrentExecutions * int(config.MaxConns); n == 0 || n > maxConnections {
		t.Errorf("%d instances have %d connections, of %d", p.ReservedConcurrentExecutions, n, maxConnections)
	}
}

// The program serves the events of every source in the template.
func TestTemplateEvents(t *testing.T) {
	t.Parallel()
	_, f := template(t)
	recording := map[string][]byte{
		"HttpApi":    request(t, "httpapi.json", http.MethodGet, "/search", ""),
		"Api":        request(t, "rest.json", http.MethodGet, "/search", ""),
		"ScheduleV2": recorded(t, "testdata", "scheduler.json"),
		"Schedule":   recorded(t, recordings, "other-scheduled.json"),
	}
	_, store := fileStore(t)
	h, err := routes(store, settings{inLambda: true}.client(), policies)
	must(t, err)
	sweeps := false
	for name, e := range f.Properties.Events {
		event, ok := recording[e.Type]
		if !ok {
			t.Errorf("event %s: the test has no recording of the type %s", name, e.Type)
			continue
		}
		answer, err := events(h, store).Invoke(t.Context(), event)
		if err != nil || !regexp.MustCompile(`"statusCode":200|^{"removed":0}$`).Match(answer) {
			t.Errorf("event %s: %s, %v", name, answer, err)
		}
		sweeps = sweeps || strings.HasPrefix(e.Type, "Schedule")
		if e.Properties["Input"] != nil {
			t.Errorf("event %s: with an input of its own the program does not know the event", name)
		}
	}
	if !sweeps {
		t.Error("no event starts a sweep")
	}
}
