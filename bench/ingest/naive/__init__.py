"""The naive design: a Django REST framework view with nested serializers, token authentication in the database and
one ORM insert per report. The portal is measured against it in the same run."""
