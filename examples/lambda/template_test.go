package main

import (
	"fmt"
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
)

// maxConnections is PostgreSQL's default, less 3 connections for superusers and 10 for people.
const maxConnections = 100 - 3 - 10

// slowest is the time to connect, and to decide for each limiter of the route with the most of them.
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

type cloudRunService struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   metadata
	Spec       struct {
		Template struct {
			Metadata metadata
			Spec     struct {
				ContainerConcurrency int `yaml:"containerConcurrency"`
				TimeoutSeconds       int `yaml:"timeoutSeconds"`
				Containers           []struct {
					Image string
					Ports []struct {
						ContainerPort int `yaml:"containerPort"`
					}
					Env []struct {
						Name      string
						Value     string
						ValueFrom struct {
							SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
						} `yaml:"valueFrom"`
					}
					Resources    struct{ Limits map[string]string }
					StartupProbe struct {
						HTTPGet struct {
							Path string
							Port int
						} `yaml:"httpGet"`
						PeriodSeconds    int `yaml:"periodSeconds"`
						TimeoutSeconds   int `yaml:"timeoutSeconds"`
						FailureThreshold int `yaml:"failureThreshold"`
					} `yaml:"startupProbe"`
				}
			}
		}
	}
}

type metadata struct {
	Name        string
	Annotations map[string]string
}

func TestService(t *testing.T) {
	t.Parallel()
	var file cloudRunService
	decode(t, "service.yaml", &file)
	revision := file.Spec.Template
	if file.APIVersion != "serving.knative.dev/v1" || file.Kind != "Service" || len(revision.Spec.Containers) != 1 {
		t.Fatalf("the file has %+v, want a service of one container", file)
	}
	c := revision.Spec.Containers[0]
	env := map[string]string{}
	for _, v := range c.Env {
		if !slices.Contains(variables(t), v.Name) {
			t.Errorf("the program does not read %s; it reads %v", v.Name, variables(t))
		}
		env[v.Name] = v.Value + v.ValueFrom.SecretKeyRef.Name
	}
	if env["DATABASE_URL"] != "limiter-database-url" || env["TRUSTED_HOPS"] != "1" || env["PORT"] != "" {
		t.Errorf("the environment is %v; DATABASE_URL comes from the secret, one proxy is in front, and PORT is set by Cloud Run", env)
	}
	if len(c.Ports) != 1 || c.StartupProbe.HTTPGet.Port != c.Ports[0].ContainerPort {
		t.Errorf("the probe uses port %d, and the ports are %+v", c.StartupProbe.HTTPGet.Port, c.Ports)
	}
	if got := send(service(t, settings{}), "@", http.MethodGet, c.StartupProbe.HTTPGet.Path, "").Code; got != http.StatusNoContent {
		t.Errorf("the path of the probe gets %d", got)
	}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	if seconds(c.StartupProbe.TimeoutSeconds) <= healthTimeout || c.StartupProbe.PeriodSeconds < c.StartupProbe.TimeoutSeconds {
		t.Errorf("the probe is %+v; a check can take %v", c.StartupProbe, healthTimeout)
	}
	if seconds(revision.Spec.TimeoutSeconds) <= slowest() {
		t.Errorf("the timeout of a request is %d s; a response can take %v", revision.Spec.TimeoutSeconds, slowest())
	}
	// Cloud Run kills a container 10 s after SIGTERM.
	if drainTimeout+healthTimeout > 10*time.Second {
		t.Errorf("draining can take %v; Cloud Run kills the process after 10 s", drainTimeout)
	}
	// Concurrent requests share the connections of an instance. 100 ms for two decisions is a lot.
	if wait := time.Duration(revision.Spec.ContainerConcurrency) * 100 * time.Millisecond / serverConns; wait == 0 || wait > storeTimeout {
		t.Errorf("the last of %d concurrent requests waits %v for a connection", revision.Spec.ContainerConcurrency, wait)
	}
	var instances int
	if _, err := fmt.Sscan(revision.Metadata.Annotations["autoscaling.knative.dev/maxScale"], &instances); err != nil || instances*serverConns > maxConnections {
		t.Errorf("%d instances (%v) have %d connections, of %d", instances, err, instances*serverConns, maxConnections)
	}
}

// commands returns the shell commands of README.md without comments, one per line.
func commands(t *testing.T) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	must(t, err)
	var list []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			if line = strings.Join(strings.Fields(line), " "); line != "" && line[0] != '#' {
				list = append(list, line)
			}
		}
	}
	return list
}

func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	parameters, f := template(t)
	list := commands(t)
	index := func(part string) int {
		i := slices.IndexFunc(list, func(c string) bool { return strings.Contains(c, part) })
		if i < 0 {
			t.Errorf("no command has %q", part)
		}
		return i
	}
	target := "-o examples/lambda/" + path.Join(f.Properties.CodeURI, f.Properties.Handler)
	goose := index("goose -dir migrations/postgres -table public.limiter_goose_version postgres \"$DIRECT_URL\" up")
	bootstrap := index("CGO_ENABLED=0 GOOS=linux GOARCH=" + f.Properties.Architectures[0] + " go build -tags lambda.norpc -trimpath -ldflags=\"-s -w\" " + target + " ./examples/lambda")
	deploy := index("sam deploy --template-file examples/lambda/template.yaml")
	replace := index("gcloud run services replace")
	if goose > bootstrap || bootstrap > deploy || goose > replace {
		t.Errorf("the tables come first (%d), then the build (%d), then the commands that need them (%d, %d)", goose, bootstrap, deploy, replace)
	}
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	must(t, err)
	install := list[max(0, index("github.com/pressly/goose/v3/cmd/goose@"))]
	if version := install[strings.LastIndex(install, "@")+1:]; !strings.Contains(string(mod), "github.com/pressly/goose/v3 "+version+"\n") {
		t.Errorf("%s: go.mod has another version", install)
	}
	for _, p := range parameters {
		if !strings.Contains(list[max(0, deploy)], p+"=") {
			t.Errorf("sam deploy does not set the parameter %s", p)
		}
	}
}
