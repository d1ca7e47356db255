//! `GET /admin/`: the page for operators. Plain files in `page/`, compiled in and served as they are.
//!
//! It is served without a token, since it holds nothing: its script asks the operator for the admin token and calls the routes beside
//! it. Its links are relative, so that it also works below a path of a proxy. The policy lets it load and call its own origin only, and
//! the browser refuses to make HTML of text, so what clients name themselves stays text.

use crate::http::only;
use actix_web::{
    HttpResponse, Responder,
    http::header,
    web::{self, ServiceConfig},
};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Path, content type and content of each file.
const FILES: [(&str, &str, &str); 10] = [
    ("/admin/", HTML, include_str!("page/index.html")),
    ("/admin/page/page.css", CSS, include_str!("page/page.css")),
    ("/admin/page/icon.svg", SVG, include_str!("page/icon.svg")),
    ("/admin/page/main.mjs", SCRIPT, include_str!("page/main.mjs")),
    ("/admin/page/relay.mjs", SCRIPT, include_str!("page/relay.mjs")),
    ("/admin/page/figures.mjs", SCRIPT, include_str!("page/figures.mjs")),
    ("/admin/page/format.mjs", SCRIPT, include_str!("page/format.mjs")),
    ("/admin/page/charts.mjs", SCRIPT, include_str!("page/charts.mjs")),
    ("/admin/page/connections.mjs", SCRIPT, include_str!("page/connections.mjs")),
    ("/admin/page/drain.mjs", SCRIPT, include_str!("page/drain.mjs")),
];

/// What the page may do: load from and call its own origin, be framed by nobody, and make no HTML of text.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

pub(super) fn routes(config: &mut ServiceConfig) {
    config.service(web::resource("/admin").get(redirect).default_service(only("GET")));
    for (path, content_type, content) in FILES {
        let file = move || async move { serve(content_type, content) };
        config.service(web::resource(path).get(file).default_service(only("GET")));
    }
}

/// From `/admin`, wherever a proxy has it.
async fn redirect() -> impl Responder {
    HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, "admin/")).finish()
}

fn serve(content_type: &'static str, content: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(content_type)
        .insert_header((header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .insert_header(("Cross-Origin-Opener-Policy", "same-origin"))
        .insert_header(("Cross-Origin-Resource-Policy", "same-origin"))
        .body(content)
}

#[cfg(test)]
mod tests {
    use super::{CONTENT_SECURITY_POLICY, FILES};
    use crate::http::{admin_routes, default_headers, testing::Fixture};
    use actix_web::{
        App,
        body::MessageBody,
        dev::ServiceResponse,
        http::header::HeaderMap,
        test::{self, TestRequest},
    };

    async fn answer(method: &str, path: &str) -> ServiceResponse<impl MessageBody> {
        let api = Fixture::new().api;
        let app = test::init_service(App::new().wrap(default_headers()).configure(|config| admin_routes(config, api))).await;
        test::call_service(&app, TestRequest::with_uri(path).method(method.parse().unwrap()).to_request()).await
    }

    fn value<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
        headers.get(name).unwrap_or_else(|| panic!("no {name}")).to_str().unwrap()
    }

    #[actix_web::test]
    async fn each_file_is_served_without_a_token_and_under_the_policy() {
        for (path, content_type, content) in FILES {
            let response = answer("GET", path).await;
            assert_eq!(response.status(), 200, "{path}");
            let headers = response.headers().clone();
            for (name, expected) in [
                ("content-type", content_type),
                ("content-security-policy", CONTENT_SECURITY_POLICY),
                ("cache-control", "no-store"),
                ("x-content-type-options", "nosniff"),
                ("referrer-policy", "no-referrer"),
                ("cross-origin-opener-policy", "same-origin"),
                ("cross-origin-resource-policy", "same-origin"),
            ] {
                assert_eq!(value(&headers, name), expected, "{path}");
            }
            assert_eq!(test::read_body(response).await, content);
            assert_eq!(answer("POST", path).await.status(), 405, "{path}");
        }
    }

    #[actix_web::test]
    async fn the_path_without_its_slash_leads_to_the_page() {
        let response = answer("GET", "/admin").await;
        assert_eq!((response.status().as_u16(), value(response.headers(), "location")), (307, "admin/"));
    }

    /// Each script and style is one of the files, imports only such, and none stands in the page itself, where the policy forbids it.
    #[test]
    fn the_page_loads_its_own_files_and_nothing_else() {
        let name_of = |path: &str| path.trim_start_matches("/admin/").to_owned();
        let served: Vec<String> = FILES.iter().map(|(path, ..)| name_of(path)).collect();
        for (path, _, content) in FILES {
            let attributes = ["src=\"", "href=\"", "from \"./"].iter().flat_map(|start| {
                let folder = if start.starts_with("from") { "page/" } else { "" };
                content.split(start).skip(1).map(move |rest| format!("{folder}{}", &rest[..rest.find('"').unwrap()]))
            });
            for link in attributes.filter(|link| !link.starts_with('#')) {
                assert!(served.contains(&link), "{path} loads {link}");
            }
            for forbidden in [" style=\"", "<style", "<script>", " onclick=", "innerHTML", "eval(", "https://"] {
                assert!(!content.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }
}
